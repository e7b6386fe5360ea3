import numpy as np
import pytest
import scipy.special
import sklearn.metrics
import torch
from torchmetrics.functional.classification import binary_calibration_error

from icda.metrics.calibration import calibration_error, negative_log_likelihood


def naive_calibration_error(logits: torch.Tensor, targets: torch.Tensor, num_bins: int = 15) -> float:
    probabilities = scipy.special.softmax(logits.double().numpy(), axis=1)
    confidence, predicted = probabilities.max(axis=1), logits.numpy().argmax(axis=1)
    error = 0.0
    for lower in range(num_bins):
        inside = np.minimum((confidence * num_bins).astype(int), num_bins - 1) == lower
        if inside.any():
            accuracy = (predicted[inside] == targets.numpy()[inside]).mean()
            error += inside.mean() * abs(accuracy - confidence[inside].mean())
    return error


def problem(seed: int, scale: float, num_classes: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(300, num_classes, generator=generator), torch.randint(
        num_classes, (300,), generator=generator
    )


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0, 300.0])
@pytest.mark.parametrize("seed", range(3))
def test_calibration_error_agrees_with_a_naive_count_even_when_softmax_saturates(seed: int, scale: float) -> None:
    logits, targets = problem(seed, scale)
    assert calibration_error(logits, targets) == pytest.approx(naive_calibration_error(logits, targets), abs=1e-6)


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0, 300.0])
@pytest.mark.parametrize(("seed", "num_bins"), [(0, 15), (1, 10), (2, 1)])
def test_calibration_error_is_that_of_torchmetrics_to_the_last_bit(seed: int, num_bins: int, scale: float) -> None:
    logits, targets = problem(seed, scale)
    confidence = -torch.nn.functional.cross_entropy(logits, logits.argmax(dim=1), reduction="none").double()
    below_one = confidence.exp().clamp(max=1 - 1e-12)  # there a confidence of exactly 1 has a bin of its own
    expected = binary_calibration_error(below_one, logits.argmax(dim=1).eq(targets).long(), n_bins=num_bins)
    assert calibration_error(logits, targets, num_bins) == float(expected)


def test_logits_between_zero_and_one_are_still_logits() -> None:
    logits = torch.tensor([[0.0, 0.9], [0.9, 0.1]])
    targets = torch.tensor([1, 0])
    assert calibration_error(logits, targets) == pytest.approx(naive_calibration_error(logits, targets), abs=1e-6)


def test_confidence_of_one_shares_the_last_bin() -> None:
    logits = torch.tensor([[0.0, 100.0], [0.0, 5.0]])
    wrong, right = torch.tensor([0, 1]), torch.tensor([1, 1])
    sure = torch.softmax(torch.tensor([0.0, 5.0], dtype=torch.float64), 0)[1].item()
    assert calibration_error(logits, wrong) == pytest.approx((1 + sure) / 2 - 0.5, abs=1e-6)
    assert calibration_error(logits, right) == pytest.approx(1 - (1 + sure) / 2, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_nll_is_scikit_learns_log_loss(seed: int) -> None:
    logits, targets = problem(seed, 2.0)
    expected = sklearn.metrics.log_loss(targets, scipy.special.softmax(logits.double().numpy(), axis=1))
    assert negative_log_likelihood(logits, targets) == pytest.approx(expected, rel=1e-5)
