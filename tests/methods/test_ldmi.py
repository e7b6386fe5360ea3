"""L_DMI: the determinant, what label noise does to it, and the two stages."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods import Setup, create_method
from icda.methods.ldmi import LDMI, determinant_loss
from icda.models.base import FeatureClassifier
from support import make_context

SETUP = Setup(
    num_classes=3, feature_dim=4, class_counts=torch.full((3,), 40), epochs=10, num_samples=120, batch_size=12
)


def naive_determinant(matrix: list[list[float]]) -> float:
    """The sum over permutations."""
    total, size = 0.0, len(matrix)
    for order in itertools.permutations(range(size)):
        swaps = sum(order[i] > order[j] for i in range(size) for j in range(i + 1, size))
        total += (-1) ** swaps * math.prod(matrix[i][order[i]] for i in range(size))
    return total


def naive_loss(probabilities: list[list[float]], targets: list[int]) -> float:
    size = len(probabilities[0])
    joint = [[0.0] * size for _ in range(size)]
    for row, target in zip(probabilities, targets, strict=True):
        for answer in range(size):
            joint[target][answer] += row[answer]
    return -math.log(abs(naive_determinant(joint)) + 1e-3)


@pytest.mark.parametrize("scale", [0.01, 1.0, 4.0])
def test_it_is_the_logarithm_of_the_determinant_over_permutations(scale: float) -> None:
    logits, targets = scale * torch.randn(20, 4, dtype=torch.float64), torch.arange(20) % 4
    wanted = naive_loss(logits.softmax(1).tolist(), targets.tolist())
    assert float(determinant_loss(logits, targets)) == pytest.approx(wanted, rel=1e-9)


def test_labels_through_a_transition_matrix_move_it_by_a_constant() -> None:
    """With every sample counted once for each noisy label, by its probability, Y becomes Y T exactly."""
    transition = torch.tensor([[0.6, 0.4, 0.0], [0.0, 0.7, 0.3], [0.2, 0.0, 0.8]], dtype=torch.float64)
    counts = (10 * transition).round().long()
    shifts = []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        logits, clean = 3 * torch.randn(30, 3, generator=generator, dtype=torch.float64), torch.arange(30) % 3
        rows = torch.arange(30).repeat_interleave(10)  # each sample ten times, its labels in the shares of its row of T
        noisy = torch.cat([torch.arange(3).repeat_interleave(counts[c]) for c in clean.tolist()])
        plain = determinant_loss(logits[rows], clean[rows])
        shifts.append(float(determinant_loss(logits[rows], noisy) - plain))
    wanted = -math.log(abs(naive_determinant(transition.tolist())))
    assert shifts == pytest.approx([wanted] * 3, abs=1e-4)  # the floor of 1e-3 is not scaled


def test_gradients_are_those_of_finite_differences() -> None:
    logits = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: determinant_loss(values, torch.arange(12) % 3), logits)


def test_a_batch_that_lacks_a_class_is_the_floor_and_pulls_nowhere() -> None:
    logits = torch.randn(12, 3, requires_grad=True)
    loss = determinant_loss(logits, torch.arange(12) % 2)
    assert float(loss.detach()) == pytest.approx(-math.log(1e-3))
    assert torch.equal(torch.autograd.grad(loss, logits)[0], torch.zeros(12, 3))


def test_a_hundred_classes_do_not_overflow() -> None:
    targets = torch.arange(6400) % 100
    logits = (20 * F.one_hot(targets, 100)).float().requires_grad_()
    loss = determinant_loss(logits, targets)
    assert float(loss.detach()) == pytest.approx(-100 * math.log(64), rel=1e-3)
    assert torch.isfinite(torch.autograd.grad(loss, logits)[0]).all()


@pytest.mark.parametrize(("epochs", "share", "lengths"), [(10, 0.5, [5, 5]), (30, 0.8, [24, 6]), (1, 0.5, [1])])
def test_each_stage_has_a_schedule_of_its_own(epochs: int, share: float, lengths: list[int]) -> None:
    stages = LDMI(SETUP, first_stage=share, second_rate=1e-3).stages(epochs)
    assert [stage.epochs for stage in stages] == lengths
    assert all(stage.restart for stage in stages)
    assert [stage.learning_rate for stage in stages] == [None, 1e-3][: len(lengths)]


def test_without_a_rate_of_its_own_rate_times_steps_is_as_published() -> None:
    published = replace(SETUP, num_samples=50_000, batch_size=128)
    assert LDMI(published).stages(200)[1].learning_rate == pytest.approx(1e-6)
    assert LDMI(SETUP).stages(10)[1].learning_rate == pytest.approx(0.039 / 50)  # five epochs of ten batches


def steps_of(stage: int, size: int) -> tuple[Any, int, Tensor]:
    """The result of a step on a batch of some size, how often it was applied, and the logits."""
    model, applied = FeatureClassifier(nn.Identity(), nn.Linear(4, 3)).double(), list[Tensor]()
    inputs = torch.randn(size, 4, dtype=torch.float64)
    batch = Batch(inputs, torch.arange(size) % 3, None, torch.arange(size))
    method = LDMI(SETUP)
    step = method.stages(10)[stage].step or method.step
    return step(batch, make_context(model, apply=applied.append)), len(applied), model(inputs).logits.detach()


@pytest.mark.parametrize("size", [12, 7])
def test_the_first_stage_is_plain_cross_entropy_on_every_batch(size: int) -> None:
    result, applied, logits = steps_of(0, size)
    assert torch.equal(result.loss, F.cross_entropy(logits, torch.arange(size) % 3))
    assert applied == 1


@pytest.mark.parametrize(("size", "times"), [(12, 1), (11, 0), (3, 0)])
def test_the_second_stage_learns_from_full_batches_alone(size: int, times: int) -> None:
    result, applied, logits = steps_of(1, size)
    assert torch.equal(result.loss, determinant_loss(logits, torch.arange(size) % 3))
    assert applied == times


def test_a_batch_that_cannot_hold_every_class_is_refused_before_training() -> None:
    with pytest.raises(ValueError, match=r"a batch of 2 cannot hold 3 classes\. Raise --batch-size"):
        LDMI(replace(SETUP, batch_size=2))


def test_a_batch_with_few_samples_of_a_class_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="a batch of 29 has fewer than 10 samples of each of 3 classes"):
        create_method("ldmi", Setup(3, 4, torch.tensor([20, 20, 20]), 10, 60, batch_size=29))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        create_method("ldmi", Setup(3, 4, torch.tensor([20, 20, 20]), 10, 60, batch_size=30))
