"""JTT, AFR and LfF: which samples count more, and by how much."""

import math
import warnings
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.afr import AFR
from icda.methods.jtt import JTT
from icda.methods.lff import LfF, relative_difficulty
from icda.models.base import FeatureClassifier, Output
from support import make_batch, make_context, make_network

JTT_SETUP = Setup(3, 5, torch.tensor([8, 8, 8]), epochs=10, num_samples=24)
JTT_INPUTS = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
JTT_TARGETS = torch.arange(24) % 3
context_of = partial(make_context, data=(JTT_INPUTS, JTT_TARGETS), num_epochs=10)
FIRST, SECOND = JTT(JTT_SETUP).stages(10)


@pytest.fixture
def model():
    return make_jtt_model()


def make_jtt_model():
    model = make_network()
    model.encoder[1].running_mean.normal_()
    return model


@torch.no_grad()
def errors_of(model):
    model.eval()
    wrong = [int(model(JTT_INPUTS[i : i + 1]).logits[0].argmax()) != int(JTT_TARGETS[i]) for i in range(24)]
    return torch.tensor(wrong)


def test_the_errors_are_those_of_the_network_in_evaluation_mode_when_the_first_stage_ends(model):
    expected = errors_of(model)
    assert 0 < int(expected.sum()) < 24
    model.train()
    method = JTT(JTT_SETUP)
    method.find_errors(context_of(model, stage=FIRST, epoch=1))
    assert torch.equal(method.errors, expected)
    assert method.epoch_figures() == {"upweighted_errors": int(expected.sum())}
    assert [stage.on_end for stage in method.stages(10)] == [method.find_errors, None], "chosen once"


def test_a_step_has_the_expected_gradient_of_the_upsampled_training_set(model):
    method = JTT(JTT_SETUP, up_weight=6)
    method.find_errors(context_of(model, stage=FIRST, epoch=1))
    weights = method.sampling_weights()
    assert weights.dtype == torch.float64
    logits = torch.randn(24, 3, dtype=torch.float64, requires_grad=True)
    value = torch.zeros((), dtype=torch.float64)
    for i in range(24):
        one = Output(torch.zeros(1, 5), logits[[i]])
        batch = Batch(JTT_INPUTS[[i]], JTT_TARGETS[[i]], None, torch.tensor([i]))
        value = value + weights[i] / weights.sum() * method.loss(one, batch, context_of(model, stage=SECOND, epoch=5))
    upsampled = [i for i in range(24) for _ in range(6 if method.errors[i] else 1)]
    expected = F.cross_entropy(logits[upsampled], JTT_TARGETS[upsampled])
    slopes = [torch.autograd.grad(loss, [logits])[0] for loss in (value, expected)]
    torch.testing.assert_close(slopes[0], slopes[1], rtol=0, atol=1e-12)


def test_a_network_without_errors_is_warned_of(model):
    def all_right():
        answers = model.eval()(JTT_INPUTS).logits.argmax(1)
        yield Batch(JTT_INPUTS, answers, None, torch.arange(24))

    context, method = context_of(model, stage=FIRST, epoch=1), JTT(JTT_SETUP)
    context.training_batches = all_right
    with pytest.warns(UserWarning, match="no training sample wrong after 2 epochs, .* A smaller first_stage"):
        method.find_errors(context)
    assert method.sampling_weights().tolist() == [1.0] * 24
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method.find_errors(context_of(model, stage=FIRST, epoch=1))


def errors_on_rank(rank):
    torch.manual_seed(0)
    model = make_jtt_model()
    model.encoder[1].running_mean.add_(rank)
    method = JTT(JTT_SETUP)
    method.find_errors(context_of(model, stage=FIRST, epoch=1))
    return errors_of(model), method.errors


def test_ranks_whose_running_figures_differ_agree_on_the_errors(run_on_ranks):
    (first, agreed), (second, again) = run_on_ranks(errors_on_rank)
    assert not torch.equal(first, second)
    assert torch.equal(agreed, again)
    assert torch.equal(agreed, first | second)


N = 40
SETUP = Setup(3, 5, torch.tensor([14, 13, 13]), epochs=10, num_samples=N, seed=2)
INPUTS = torch.randn(N, 4, generator=torch.Generator().manual_seed(1))
TARGETS = torch.arange(N) % 3


def make_model():
    torch.manual_seed(0)
    return FeatureClassifier(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)), nn.Linear(5, 3))


def first_loss(method, logits, rows):
    """The loss of the first stage on some samples."""
    output, batch = Output(torch.zeros(len(rows), 5), logits), Batch(INPUTS[rows], TARGETS[rows], None, rows)
    loss = method.stages(10)[0].loss
    return loss(output, batch, make_context(make_model()))


def test_the_first_stage_learns_from_all_but_the_samples_held_back():
    method, logits = AFR(SETUP, held_share=0.3), torch.randn(N, 3, dtype=torch.float64)
    found = first_loss(method, logits, torch.arange(N))
    kept = [i for i in range(N) if not method.held[i]]
    assert 0 < len(kept) < N
    expected = sum(float(F.cross_entropy(logits[[i]], TARGETS[[i]])) for i in kept) / len(kept)
    assert float(found) == pytest.approx(expected, abs=1e-12)


def test_a_batch_of_held_samples_alone_teaches_nothing():
    method, rows = AFR(SETUP), AFR(SETUP).held.nonzero().flatten()
    logits = torch.randn(len(rows), 3, requires_grad=True)
    loss = first_loss(method, logits, rows)
    assert float(loss) == 0
    assert not torch.autograd.grad(loss, [logits])[0].any()


def test_the_head_is_taught_by_held_samples_drawn_by_how_little_they_are_believed():
    model, method = make_model(), AFR(SETUP, held_share=0.4, gamma=3.0)
    model.train()
    method.stages(10)[0].on_end(make_context(model, data=(INPUTS, TARGETS)))
    assert model.training
    weights = method.sampling_weights()
    model.eval()
    held = [i for i in range(N) if method.held[i]]
    for i in range(N):
        with torch.no_grad():
            believed = float(model(INPUTS[[i]]).logits.softmax(1)[0, TARGETS[i]])
        alike = sum(int(TARGETS[j]) == int(TARGETS[i]) for j in held)
        expected = math.exp(-3 * believed) / alike if i in held else 0.0
        assert float(weights[i]) == pytest.approx(expected, abs=1e-6)


def test_the_head_is_held_back_to_where_the_first_stage_left_it():
    model, method = make_model(), AFR(SETUP, decay=0.7)
    first, second = method.stages(10)
    context = make_context(model, data=(INPUTS, TARGETS))
    first.on_end(context)
    batch, logits = Batch(INPUTS, TARGETS, None, torch.arange(N)), torch.randn(N, 3)
    output = Output(torch.zeros(N, 5), logits)
    plain = float(F.cross_entropy(logits, TARGETS))
    assert float(second.loss(output, batch, context)) == pytest.approx(plain)
    with torch.no_grad():
        model.head.weight.add_(0.5)
        model.head.bias.sub_(1.0)
    moved = plain + 0.7 * (15 * 0.25 + 3 * 1.0)
    assert float(second.loss(output, batch, context)) == pytest.approx(moved, rel=1e-5)


LFF_SETUP = Setup(num_classes=4, feature_dim=6, class_counts=torch.full((4,), 5), epochs=2, num_samples=20)
BATCH = make_batch(1, size=8)


def losses_by_hand(model, batch):
    """-log p_y of each sample, in a list."""
    likely = model(batch.inputs).logits.softmax(1)
    return [-math.log(float(likely[i, y])) for i, y in enumerate(batch.targets.tolist())]


def weights_by_hand(batches, models, part=0.7):
    """The weights of the last of some batches, from all losses so far: running means, shares of the class's largest."""
    means, of_class = {}, {}
    for batch in batches:
        for i, pair in enumerate(zip(losses_by_hand(models[1], batch), losses_by_hand(models[0], batch), strict=True)):
            sample = int(batch.index[i])
            earlier = means.get(sample, pair)
            means[sample] = [part * old + (1 - part) * new for old, new in zip(earlier, pair, strict=True)]
            of_class[sample] = int(batch.targets[i])
    weights = []
    for sample in batches[-1].index.tolist():
        same = [means[other] for other in means if of_class[other] == of_class[sample]]
        biased, kept = (means[sample][k] / max(pair[k] for pair in same) for k in (0, 1))
        weights.append(biased / (biased + kept))
    return weights


def test_each_network_gets_the_gradient_of_its_own_loss(models):
    slopes = []

    def apply(loss):
        slopes.extend(torch.autograd.grad(loss, [model.head.weight for model in models]))

    method = LfF(LFF_SETUP, q=0.6)
    result = method.step(BATCH, make_context(*models, apply=apply))
    weights = weights_by_hand([BATCH], models)
    kept_total, biased_total = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for i, weight in enumerate(weights):
        y = int(BATCH.targets[i])
        kept, biased = (model(BATCH.inputs[[i]]).logits.softmax(1)[0, y] for model in models)
        kept_total = kept_total - weight * kept.log() / 8
        biased_total = biased_total + (1 - biased**0.6) / 0.6 / 8
    expected = (
        torch.autograd.grad(kept_total, [models[0].head.weight])[0],
        torch.autograd.grad(biased_total, [models[1].head.weight])[0],
    )
    for found, wanted in zip(slopes, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-7)
    assert result.extra["weight"] == pytest.approx(sum(weights) / 8, rel=1e-6)
    assert float(result.loss) == pytest.approx(float(kept_total), rel=1e-6)


@pytest.mark.parametrize("options", [{}, {"smoothing": 0.6}])
def test_losses_are_means_over_epochs_and_shares_of_the_largest_of_their_class(models, options):
    """The second batch has samples of the first with other inputs, as an augmentation gives, and samples not seen yet."""
    method = LfF(LFF_SETUP, **options)
    first, other = make_batch(1, size=8), make_batch(2, size=8)
    second = Batch(other.inputs, other.targets, None, torch.tensor([0, 5, 2, 7, 12, 13, 14, 15]))
    for batch in (first, second):
        pairs = [losses_by_hand(model, batch) for model in reversed(models)]
        shares = method.compared(torch.tensor(pairs, dtype=torch.float64).T, batch)
    wanted = weights_by_hand([first, second], models, *options.values())
    assert relative_difficulty(*shares.unbind(1)).tolist() == pytest.approx(wanted, rel=1e-6)


def test_a_class_without_any_loss_weighs_a_half():
    shares = LfF(LFF_SETUP).compared(torch.zeros(8, 2, dtype=torch.float64), BATCH)
    assert relative_difficulty(*shares.unbind(1)).tolist() == [0.5] * 8


def test_equal_losses_and_no_losses_at_all_weigh_a_half():
    assert relative_difficulty(torch.tensor([2.0, 0.0]), torch.tensor([2.0, 0.0])).tolist() == [0.5, 0.5]
    assert relative_difficulty(torch.tensor([5.0]), torch.tensor([0.0])).tolist() == [1.0]
