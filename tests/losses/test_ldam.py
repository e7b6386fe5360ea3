import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.losses.cosine import cosines
from icda.losses.ldam import LDAMLoss
from support import head_batch

COUNTS = [500, 40, 3]


def oracle(features, weight, targets, counts, top, s):
    margins = [n**-0.25 if n else 0.0 for n in counts]
    margins = [top * m / max(margins) for m in margins]
    values = []
    for h, y in zip(features.tolist(), targets.tolist(), strict=True):
        logits = []
        for c, w in enumerate(weight.tolist()):
            cosine = sum(a * b for a, b in zip(h, w, strict=True)) / math.hypot(*h) / math.hypot(*w)
            logits.append(s * (cosine - (margins[c] if c == y else 0)))
        values.append(math.log(sum(math.exp(z) for z in logits)) - logits[y])
    return values


@pytest.mark.parametrize(("max_margin", "scale"), [(0.5, 30.0), (0.3, 10.0)])
@pytest.mark.parametrize("counts", [COUNTS, [7, 2], [50, 20, 9] + [1] * 96 + [0]], ids=["3", "2", "100, one absent"])
def test_it_is_the_formula_computed_in_loops(max_margin, scale, counts):
    features, targets, head = head_batch(len(counts))
    targets = targets % len(counts)
    expected = torch.tensor(oracle(features, head.weight, targets, counts, max_margin, scale), dtype=torch.float64)
    for reduction, wanted in (("none", expected), ("mean", expected.mean()), ("sum", expected.sum())):
        loss = LDAMLoss(len(counts), 5, torch.tensor(counts), max_margin=max_margin, scale=scale, reduction=reduction)
        torch.testing.assert_close(loss(features, targets, head), wanted, rtol=1e-10, atol=1e-11)


def test_margin_zero_is_the_cross_entropy_of_scaled_cosines():
    features, targets, head = head_batch()
    value = LDAMLoss(3, 5, torch.tensor(COUNTS), max_margin=0.0, scale=16.0)(features, targets, head)
    expected = F.cross_entropy(16 * cosines(features, head.weight), targets)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-13)


def test_the_rarest_class_has_the_largest_margin_and_an_absent_one_none():
    loss = LDAMLoss(4, 5, torch.tensor([1600, 100, 0, 100]), max_margin=0.4)
    assert loss.margins.tolist() == pytest.approx([0.2, 0.4, 0.0, 0.4])
    phi = loss.adjustment(torch.randn(2, 5), torch.tensor([0, 1]), nn.Linear(5, 4))
    assert phi.gather(1, torch.tensor([[0], [1]])).flatten().tolist() == [0, 0]
    assert phi[0, 1:].tolist() == pytest.approx([6.0] * 3)
    assert phi[1, 0].item() == pytest.approx(12.0)
