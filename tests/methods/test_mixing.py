"""Mixtures: who may be mixed with whom, how much of each, what the network is given, what it loses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from icda.data.task import Batch
from icda.methods.base import Setup
from icda.methods.mixing import (
    DomainMix,
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
from icda.models import FeatureClassifier
from support import make_context

SETUP = Setup(3, 4, torch.tensor([30, 20, 10]), 1, 60, group_domains=torch.tensor([0, 1, 0, 1, 0, 1]))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_partners_are_eligible_and_a_row_without_any_keeps_itself() -> None:
    eligible = torch.rand(40, 40, generator=generator()) < 0.1
    eligible[5] = False
    for seed in range(20):
        for row, partner in enumerate(random_partners(eligible, generator(seed)).tolist()):
            assert eligible[row, partner] if eligible[row].any() else partner == row


def test_all_eligible_partners_are_drawn_equally_often() -> None:
    eligible = torch.tensor([[False, True, False, True, True, True]]).expand(6, 6)
    drawn = torch.cat([random_partners(eligible, generator(seed)) for seed in range(2000)])
    shares = drawn.bincount(minlength=6) / len(drawn)
    for share, wanted in zip(shares.tolist(), [0, 0.25, 0, 0.25, 0.25, 0.25], strict=True):
        assert share == pytest.approx(wanted, abs=4 * math.sqrt(0.25 * 0.75 / 12_000))


@pytest.mark.parametrize("alpha", [0.2, 2.0])
def test_shares_have_the_mean_and_the_variance_of_the_beta_distribution(alpha: float) -> None:
    shares = beta_shares(100_000, alpha, generator())
    assert shares.dtype == torch.float64
    assert float(shares.min()) >= 0
    assert float(shares.max()) <= 1
    variance = 1 / (4 * (2 * alpha + 1))
    assert float(shares.mean()) == pytest.approx(0.5, abs=4 * math.sqrt(variance / 100_000))
    assert float(shares.var()) == pytest.approx(variance, rel=0.02)


def test_a_mix_depends_on_the_generator_alone() -> None:
    eligible = torch.ones(8, 8, dtype=torch.bool)
    first, again, other = (draw_mix(eligible, 2.0, generator(seed)) for seed in (1, 1, 2))
    torch.rand(3)
    assert torch.equal(first.partner, again.partner)
    assert torch.equal(first.share, again.share)
    assert not torch.equal(first.share, other.share)


def test_a_row_without_partner_has_share_one_and_is_not_counted_as_mixed() -> None:
    eligible = torch.tensor([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=torch.bool)
    mix = draw_mix(eligible, 2.0, generator())
    assert mix.partner.tolist() == [1, 0, 2]
    assert mix.share[2] == 1
    assert (mix.share[:2] < 1).all()
    assert mix.mixed == pytest.approx(2 / 3)
    values = torch.randn(3, 5)
    assert torch.equal(mix_rows(values, mix)[2], values[2])


@pytest.mark.parametrize("shape", [(4,), (3, 5, 6)], ids=["features", "images"])
def test_mixed_rows_are_the_weighted_sum_of_the_two(shape: tuple[int, ...]) -> None:
    values = torch.randn(6, *shape, dtype=torch.float64)
    mix = draw_mix(torch.ones(6, 6, dtype=torch.bool), 2.0, generator())
    found = mix_rows(values, mix)
    for i in range(6):
        share, j = float(mix.share[i]), int(mix.partner[i])
        torch.testing.assert_close(found[i], share * values[i] + (1 - share) * values[j], rtol=0, atol=1e-15)
    assert mix_rows(values.float(), mix).dtype == torch.float32


def naive_loss(logits: Tensor, targets: Tensor, mix: Mix) -> float:
    total = 0.0
    for i in range(len(targets)):
        exponentials = [math.exp(z) for z in logits[i].tolist()]
        share, own, other = float(mix.share[i]), int(targets[i]), int(targets[mix.partner[i]])
        soft = [share * (c == own) + (1 - share) * (c == other) for c in range(logits.shape[1])]
        total -= sum(t * math.log(e / sum(exponentials)) for t, e in zip(soft, exponentials, strict=True))
    return total / len(targets)


def test_the_loss_is_the_cross_entropy_of_soft_targets_and_so_is_its_gradient() -> None:
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

    def __init__(self, text: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 4) if text else nn.Identity()
        self.hidden = nn.Linear(4, 6)

    def forward(self, inputs: Any) -> Tensor:
        embedded = self.embedding(inputs["input_ids"]).mean(1) if isinstance(inputs, dict) else inputs
        return self.hidden(embedded).tanh()


def test_tensors_are_mixed_before_the_encoder() -> None:
    model = FeatureClassifier(Curved(text=False), nn.Linear(6, 3)).double()
    inputs, mix = (
        torch.randn(5, 4, dtype=torch.float64),
        draw_mix(torch.ones(5, 5, dtype=torch.bool), 2.0, generator(1)),
    )
    found = mixed_logits(make_context(model), inputs, mix)
    for i in range(5):
        share = float(mix.share[i])
        one = share * inputs[i] + (1 - share) * inputs[mix.partner[i]]
        torch.testing.assert_close(found[i], model(one[None]).logits[0])


def test_features_of_token_ids_are_mixed_between_encoder_and_head() -> None:
    model = FeatureClassifier(Curved(text=True), nn.Linear(6, 3)).double()
    inputs = {"input_ids": torch.randint(9, (5, 4))}
    mix = draw_mix(torch.ones(5, 5, dtype=torch.bool), 2.0, generator(1))
    found, features = mixed_logits(make_context(model), inputs, mix), model(inputs).features
    for i in range(5):
        share = float(mix.share[i])
        torch.testing.assert_close(found[i], model.head(share * features[i] + (1 - share) * features[mix.partner[i]]))


def test_boxes_are_rectangles_and_the_share_is_that_of_the_pixels_kept() -> None:
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


def test_box_centres_are_uniform_over_the_image() -> None:
    one_pixel = Mix(torch.zeros(8000, dtype=torch.long), torch.full((8000,), 1 - 1 / 16, dtype=torch.float64))
    boxes, _ = cut_boxes(one_pixel, (4, 4), generator())  # a quarter of the side: one pixel
    assert (boxes.sum((1, 2)) == 1).all()
    torch.testing.assert_close(boxes.double().mean(0), torch.full((4, 4), 1 / 16).double(), rtol=0, atol=0.011)


def test_pasted_images_have_the_partners_pixels_inside_the_box_and_their_own_outside() -> None:
    images = torch.randn(6, 2, 5, 7)
    boxes, mix = cut_boxes(draw_mix(torch.ones(6, 6, dtype=torch.bool), 2.0, generator()), (5, 7), generator(3))
    found = paste(images, boxes, mix)
    for i in range(6):
        for row in range(5):
            for column in range(7):
                source = int(mix.partner[i]) if boxes[i, row, column] else i
                assert torch.equal(found[i, :, row, column], images[source, :, row, column])


def test_a_sample_without_partner_has_an_empty_box() -> None:
    boxes, mix = cut_boxes(draw_mix(torch.zeros(4, 4, dtype=torch.bool), 2.0, generator()), (5, 5), generator())
    assert not boxes.any()
    assert mix.share.tolist() == [1.0] * 4


def step_on_text(rank: int) -> dict[str, Tensor]:
    """One SGD step on this rank's half of a text batch, the network wrapped as in training."""
    torch.manual_seed(0)
    model = FeatureClassifier(Curved(text=True), nn.Linear(6, 3))
    context = replace(make_context(model, rate=0.5), networks=[DistributedDataParallel(model)])
    ids, groups = torch.randint(9, (12, 4)), torch.arange(12) % 6
    mine = slice(rank, None, 2) if rank >= 0 else slice(None)
    batch = Batch({"input_ids": ids[mine]}, (groups // 2)[mine], groups.roll(1)[mine], torch.arange(12)[mine])
    DomainMix(SETUP).step(batch, context)
    return {name: value.detach() for name, value in model.named_parameters()}


def test_two_ranks_that_mix_features_hold_the_same_weights_after_a_step(run_on_ranks: Callable[..., list[Any]]) -> None:
    first, second = run_on_ranks(step_on_text)
    torch.manual_seed(0)
    untrained = dict(FeatureClassifier(Curved(text=True), nn.Linear(6, 3)).named_parameters())
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
        assert not torch.equal(value, untrained[name]), name
