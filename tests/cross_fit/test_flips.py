"""XRM's flip rule against a loop in float64."""

from __future__ import annotations

import math

import pytest
import torch

from icda.cross_fit import flip_labels, flip_probability


@pytest.mark.parametrize("num_classes", [2, 3, 7])
def test_the_probability_is_that_of_the_formula_written_out(num_classes: int) -> None:
    logits = 3 * torch.randn(20, num_classes, dtype=torch.float64)
    found = flip_probability(logits)
    for row, value in zip(logits.tolist(), found.tolist(), strict=True):
        exponentials = [math.exp(z) for z in row]
        largest = max(exponentials) / sum(exponentials)
        assert value == pytest.approx((largest - 1 / num_classes) * num_classes / (num_classes - 1), abs=1e-12)


def test_a_label_becomes_the_answer_exactly_where_the_draw_lies_below() -> None:
    logits, labels = torch.randn(200, 3, dtype=torch.float64), torch.randint(3, (200,))
    uniform = torch.rand(200, dtype=torch.float64)
    found = flip_labels(labels, logits, uniform).tolist()
    for i in range(200):
        flips = float(uniform[i]) < float(flip_probability(logits[i : i + 1]))
        assert found[i] == (int(logits[i].argmax()) if flips else int(labels[i]))
    assert 0 < sum(new != old for new, old in zip(found, labels.tolist(), strict=True)) < 200


def test_an_answer_without_preference_never_flips_and_a_certain_one_always_does() -> None:
    labels = torch.tensor([1, 1])
    assert flip_labels(labels, torch.zeros(2, 2), torch.zeros(2)).tolist() == [1, 1]
    assert flip_labels(labels, torch.tensor([[1e4, 0.0]] * 2), torch.full((2,), 0.999999)).tolist() == [0, 0]
