"""Mixing pairs: partners, shares, boxes and losses; then LISA's and DomainMix's choice of pairs."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from icda.data.generators import generator_for
from icda.data.task import Batch
from icda.methods import Setup, create_method
from icda.methods.domain_mix import DomainMix
from icda.methods.lisa import LISA
from icda.methods.mixing import (
    Mix,
    beta_shares,
    cut_boxes,
    draw_mix,
    mix_rows,
    mixed_cross_entropy,
    mixed_logits,
    paste,
    random_partners,
)
from icda.models import FeatureClassifier, create_model
from support import make_context, mixed_inputs, mixture_loss

THREE_CLASSES = Setup(3, 4, torch.tensor([30, 20, 10]), 1, 60, group_domains=torch.tensor([0, 1, 0, 1, 0, 1]))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_partners_are_eligible_and_a_row_without_any_keeps_itself():
    eligible = torch.rand(40, 40, generator=generator()) < 0.1
    eligible[5] = False
    for seed in range(20):
        for row, partner in enumerate(random_partners(eligible, generator(seed)).tolist()):
            assert eligible[row, partner] if eligible[row].any() else partner == row


def test_all_eligible_partners_are_drawn_equally_often():
    eligible = torch.tensor([[False, True, False, True, True, True]]).expand(6, 6)
    drawn = torch.cat([random_partners(eligible, generator(seed)) for seed in range(2000)])
    shares = drawn.bincount(minlength=6) / len(drawn)
    for share, wanted in zip(shares.tolist(), [0, 0.25, 0, 0.25, 0.25, 0.25], strict=True):
        assert share == pytest.approx(wanted, abs=4 * math.sqrt(0.25 * 0.75 / 12_000))


@pytest.mark.parametrize("alpha", [0.2, 2.0])
def test_shares_have_the_mean_and_the_variance_of_the_beta_distribution(alpha):
    shares = beta_shares(100_000, alpha, generator())
    assert shares.dtype == torch.float64
    assert float(shares.min()) >= 0
    assert float(shares.max()) <= 1
    variance = 1 / (4 * (2 * alpha + 1))
    assert float(shares.mean()) == pytest.approx(0.5, abs=4 * math.sqrt(variance / 100_000))
    assert float(shares.var()) == pytest.approx(variance, rel=0.02)


def test_a_mix_depends_on_the_generator_alone():
    eligible = torch.ones(8, 8, dtype=torch.bool)
    first, again, other = (draw_mix(eligible, 2.0, generator(seed)) for seed in (1, 1, 2))
    torch.rand(3)
    assert torch.equal(first.partner, again.partner)
    assert torch.equal(first.share, again.share)
    assert not torch.equal(first.share, other.share)


def test_a_row_without_partner_has_share_one_and_is_not_counted_as_mixed():
    eligible = torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=torch.bool)
    mix = draw_mix(eligible, 2.0, generator())
    assert mix.partner.tolist() == [1, 0, 2]
    assert mix.share[2] == 1
    assert (mix.share[:2] < 1).all()
    assert mix.mixed == pytest.approx(2 / 3)
    values = torch.randn(3, 5)
    assert torch.equal(mix_rows(values, mix)[2], values[2])


@pytest.mark.parametrize("shape", [(4,), (3, 5, 6)], ids=["features", "images"])
def test_mixed_rows_are_the_weighted_sum_of_the_two(shape):
    values = torch.randn(6, *shape, dtype=torch.float64)
    mix = draw_mix(torch.ones(6, 6, dtype=torch.bool), 2.0, generator())
    found = mix_rows(values, mix)
    for i in range(6):
        share, j = float(mix.share[i]), int(mix.partner[i])
        torch.testing.assert_close(found[i], share * values[i] + (1 - share) * values[j], rtol=0, atol=1e-15)
    assert mix_rows(values.float(), mix).dtype == torch.float32


def naive_loss(logits, targets, mix):
    total = 0.0
    for i in range(len(targets)):
        exponentials = [math.exp(z) for z in logits[i].tolist()]
        share, own, other = float(mix.share[i]), int(targets[i]), int(targets[mix.partner[i]])
        soft = [share * (c == own) + (1 - share) * (c == other) for c in range(logits.shape[1])]
        total -= sum(t * math.log(e / sum(exponentials)) for t, e in zip(soft, exponentials, strict=True))
    return total / len(targets)


def test_the_loss_is_the_cross_entropy_of_soft_targets_and_so_is_its_gradient():
    logits = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    targets, mix = torch.arange(7) % 3, draw_mix(torch.ones(7, 7, dtype=torch.bool), 2.0, generator(4))
    loss = mixed_cross_entropy(logits, targets, mix)
    assert float(loss.detach()) == pytest.approx(naive_loss(logits.detach(), targets, mix), abs=1e-12)
    hot = torch.eye(3, dtype=torch.float64)[targets]
    soft = mix.share[:, None] * hot + (1 - mix.share[:, None]) * hot[mix.partner]
    (found,) = torch.autograd.grad(loss, [logits])
    torch.testing.assert_close(found, (logits.detach().softmax(1) - soft) / 7)


class Curved(nn.Module):
    """An encoder, and with `nn.Embedding` before it a text's, for which inputs and features mix differently."""

    def __init__(self, text):
        super().__init__()
        self.embedding = nn.Embedding(9, 4) if text else nn.Identity()
        self.hidden = nn.Linear(4, 6)

    def forward(self, inputs):
        embedded = self.embedding(inputs["input_ids"]).mean(1) if isinstance(inputs, dict) else inputs
        return self.hidden(embedded).tanh()


def test_features_of_token_ids_are_mixed_between_encoder_and_head():
    model = FeatureClassifier(Curved(text=True), nn.Linear(6, 3)).double()
    inputs = {"input_ids": torch.randint(9, (5, 4))}
    mix = draw_mix(torch.ones(5, 5, dtype=torch.bool), 2.0, generator(1))
    found, features = mixed_logits(make_context(model), inputs, mix), model(inputs).features
    for i in range(5):
        share = float(mix.share[i])
        torch.testing.assert_close(found[i], model.head(share * features[i] + (1 - share) * features[mix.partner[i]]))


def test_boxes_are_rectangles_and_the_share_is_that_of_the_pixels_kept():
    drawn = draw_mix(torch.ones(50, 50, dtype=torch.bool), 2.0, generator())
    boxes, mix = cut_boxes(drawn, (12, 9), generator(1))
    assert boxes.shape == (50, 12, 9)
    for i in range(50):
        rows, columns = boxes[i].any(1), boxes[i].any(0)
        assert torch.equal(boxes[i], rows[:, None] & columns)
        for side, length in ((rows, 12), (columns, 9)):
            places = side.nonzero().flatten().tolist()
            assert places == list(range(places[0], places[0] + len(places))) if places else True
            whole = int(length * math.sqrt(1 - float(drawn.share[i])))
            at_border = side[0] or side[-1]
            assert len(places) <= whole if at_border else len(places) == whole
        assert float(mix.share[i]) == pytest.approx(1 - int(boxes[i].sum()) / 108, abs=1e-12)
    assert torch.equal(mix.partner, drawn.partner)


def test_box_centres_are_uniform_over_the_image():
    one_pixel = Mix(torch.zeros(8000, dtype=torch.long), torch.full((8000,), 1 - 1 / 16, dtype=torch.float64))
    boxes, _ = cut_boxes(one_pixel, (4, 4), generator())  # a quarter of the side: one pixel
    assert (boxes.sum((1, 2)) == 1).all()
    torch.testing.assert_close(boxes.double().mean(0), torch.full((4, 4), 1 / 16).double(), rtol=0, atol=0.011)


def test_pasted_images_have_the_partners_pixels_inside_the_box_and_their_own_outside():
    images = torch.randn(6, 2, 5, 7)
    boxes, mix = cut_boxes(draw_mix(torch.ones(6, 6, dtype=torch.bool), 2.0, generator()), (5, 7), generator(3))
    found = paste(images, boxes, mix)
    for i in range(6):
        for row in range(5):
            for column in range(7):
                source = int(mix.partner[i]) if boxes[i, row, column] else i
                assert torch.equal(found[i, :, row, column], images[source, :, row, column])


def test_a_sample_without_partner_has_an_empty_box():
    boxes, mix = cut_boxes(draw_mix(torch.zeros(4, 4, dtype=torch.bool), 2.0, generator()), (5, 5), generator())
    assert not boxes.any()
    assert mix.share.tolist() == [1.0] * 4


def step_on_text(rank):
    """One SGD step on this rank's half of a text batch, the network wrapped as in training."""
    torch.manual_seed(0)
    model = FeatureClassifier(Curved(text=True), nn.Linear(6, 3))
    context = replace(make_context(model, rate=0.5), networks=[DistributedDataParallel(model)])
    ids, groups = torch.randint(9, (12, 4)), torch.arange(12) % 6
    mine = slice(rank, None, 2) if rank >= 0 else slice(None)
    batch = Batch({"input_ids": ids[mine]}, (groups // 2)[mine], groups.roll(1)[mine], torch.arange(12)[mine])
    DomainMix(THREE_CLASSES).step(batch, context)
    return {name: value.detach() for name, value in model.named_parameters()}


def test_two_ranks_that_mix_features_hold_the_same_weights_after_a_step(run_on_ranks):
    first, second = run_on_ranks(step_on_text)
    torch.manual_seed(0)
    untrained = dict(FeatureClassifier(Curved(text=True), nn.Linear(6, 3)).named_parameters())
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
        assert not torch.equal(value, untrained[name]), name


DOMAINS = torch.tensor([0, 1, 0, 1])
SETUP = Setup(2, 6, torch.tensor([60, 40]), epochs=1, num_samples=100, seed=3, group_domains=DOMAINS)
IMAGES = Setup(2, 6, torch.tensor([60, 40]), 1, 100, input_shape=(3, 6, 6), seed=3, group_domains=DOMAINS)
INPUTS = torch.randn(10, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
GROUPS = torch.tensor([0, 0, 1, 2, 3, 3, 1, 0, 2, 0])
BATCH = Batch(INPUTS, GROUPS // 2, GROUPS, torch.arange(10))


@pytest.fixture
def model():
    return create_model("mlp", 2, (5,), hidden=6).double()


@pytest.mark.parametrize("p_sel", [0.0, 1.0])
def test_pairs_agree_in_exactly_the_label_or_exactly_the_domain(p_sel):
    method = LISA(SETUP, p_sel=p_sel)
    targets, domains = GROUPS // 2, GROUPS % 2
    found = method.eligible(targets, domains, make_context())
    for i in range(10):
        for j in range(10):
            same_label, same_domain = bool(targets[i] == targets[j]), bool(domains[i] == domains[j])
            wanted = (same_label and not same_domain) if p_sel else (same_domain and not same_label)
            assert bool(found[i, j]) == wanted


def test_the_coin_is_one_a_batch_with_probability_p_sel_and_a_function_of_seed_and_iteration():
    method, again = LISA(SETUP, p_sel=0.3), LISA(SETUP, p_sel=0.3)
    tosses = [method.same_label(iteration) for iteration in range(4000)]
    assert sum(tosses) / 4000 == pytest.approx(0.3, abs=0.029)  # four standard deviations
    assert [again.same_label(iteration) for iteration in reversed(range(50))] == tosses[49::-1]


@pytest.mark.parametrize("p_sel", [0.0, 1.0])
def test_a_step_is_lambda_ce_of_one_label_plus_the_rest_of_the_other(p_sel, model):
    method = LISA(SETUP, p_sel=p_sel)
    applied = []
    result = method.step(BATCH, make_context(model, apply=applied.append, iteration=5))
    eligible = method.eligible(BATCH.targets, GROUPS % 2, make_context(iteration=5))
    mix = draw_mix(eligible, 2.0, generator_for(3, "mixing", 5, 0))
    assert eligible[torch.arange(10), mix.partner].all()
    wanted = mixture_loss(model, mixed_inputs(INPUTS, mix), BATCH.targets, mix)
    torch.testing.assert_close(applied, [wanted])
    torch.testing.assert_close(result.loss, wanted.detach())
    assert result.extra == {"mixed": 1.0}


def test_samples_without_a_partner_stay_unmixed(model):
    batch = BATCH._replace(targets=torch.zeros(10, dtype=torch.long), groups=torch.tensor([0] * 10))
    for p_sel in (0.0, 1.0):
        result = LISA(SETUP, p_sel=p_sel).step(batch, make_context(model))
        torch.testing.assert_close(result.loss, F.cross_entropy(model(INPUTS).logits, batch.targets).detach())
        assert result.extra == {"mixed": 0.0}


def test_cutmix_gives_the_network_pasted_images_and_the_loss_the_share_of_pixels():
    model = create_model("mlp", 2, (3, 6, 6), hidden=6).double()
    images = torch.randn(10, 3, 6, 6, dtype=torch.float64)
    method = LISA(IMAGES, p_sel=0.0, mix="cutmix")
    result = method.step(BATCH._replace(inputs=images), make_context(model, iteration=2))
    generator = generator_for(3, "mixing", 2, 0)
    eligible = method.eligible(BATCH.targets, GROUPS % 2, make_context(iteration=2))
    boxes, mix = cut_boxes(draw_mix(eligible, 2.0, generator), (6, 6), generator)
    mixtures = images.clone()
    for i in range(10):
        mixtures[i][:, boxes[i]] = images[mix.partner[i]][:, boxes[i]]
        assert float(mix.share[i]) == pytest.approx(1 - int(boxes[i].sum()) / 36)
    torch.testing.assert_close(result.loss, mixture_loss(model, mixtures, BATCH.targets, mix).detach())


def test_boxes_are_not_cut_out_of_what_is_no_image():
    with pytest.raises(ValueError, match="it needs inputs of shape"):
        create_method("lisa", SETUP, {"mix": "cutmix"})


def test_one_domain_is_enough_when_only_labels_are_mixed():
    one = Setup(2, 6, torch.tensor([60, 40]), 1, 100, group_domains=torch.zeros(2, dtype=torch.long))
    LISA(one, p_sel=0.0)
    with pytest.raises(ValueError, match="LISA compares domains"):
        LISA(one)


def test_a_step_is_the_mixed_cross_entropy_of_pairs_from_different_domains(model):
    for iteration in (0, 7):
        applied = []
        result = DomainMix(SETUP).step(BATCH, make_context(model, apply=applied.append, iteration=iteration))
        domains = GROUPS % 2
        mix = draw_mix(domains[:, None] != domains, 0.2, generator_for(3, "mixing", iteration, 0))
        assert (domains != domains[mix.partner]).all()
        wanted = mixture_loss(model, mixed_inputs(INPUTS, mix), BATCH.targets, mix)
        torch.testing.assert_close(applied, [wanted])
        torch.testing.assert_close(result.loss, wanted.detach())
        assert result.extra == {"mixed": 1.0}
        assert result.logits is None


def test_a_batch_of_one_domain_is_plain_cross_entropy(model):
    batch = BATCH._replace(groups=torch.tensor([0, 2] * 5))
    result = DomainMix(SETUP).step(batch, make_context(model))
    torch.testing.assert_close(result.loss, F.cross_entropy(model(INPUTS).logits, batch.targets).detach())
    assert result.extra == {"mixed": 0.0}
