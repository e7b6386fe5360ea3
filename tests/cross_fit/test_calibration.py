"""Calibration against SciPy's optimiser, and its limits."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch.nn import functional as F

from icda.cross_fit import fit_calibration
from icda.cross_fit.calibration import DECAY


def held_out(num_classes, count=400):
    """Logits that say too much of the truth, and are biased towards some classes."""
    targets = torch.randint(num_classes, (count,))
    logits = 2 * torch.randn(count, num_classes, dtype=torch.float64)
    logits[torch.arange(count), targets] += 2.5
    return 6 * logits + torch.linspace(0, 4, num_classes, dtype=torch.float64), targets


@pytest.mark.parametrize("num_classes", [2, 3, 6])
def test_the_loss_is_the_least_that_another_optimiser_finds(num_classes):
    logits, targets = held_out(num_classes)
    values, rows = logits.numpy(), targets.numpy()
    spread = (values - values.mean(1, keepdims=True)).std()

    def loss(parameters):
        total = 0.0
        for z, y in zip(values, rows, strict=True):
            shifted = parameters[0] / spread * z + parameters[1:]
            total += np.log(np.exp(shifted - shifted.max()).sum()) + shifted.max() - shifted[y]
        return total / len(rows) + DECAY * parameters[0] ** 2

    best = minimize(loss, np.zeros(num_classes + 1), method="BFGS", options={"gtol": 1e-7})
    calibration = fit_calibration(logits, targets)
    ours = loss(np.concatenate([[float(calibration.scale) * spread], calibration.bias.numpy()]))
    assert ours <= best.fun + 1e-9
    expected = torch.from_numpy(best.x[0] / spread * values + best.x[1:]).log_softmax(1)
    torch.testing.assert_close(calibration.log_probabilities(logits), expected, rtol=0, atol=2e-3)


def test_probabilities_keep_what_they_promise():
    logits, targets = held_out(3, 2000)
    calibrated = fit_calibration(logits, targets).log_probabilities(logits)
    assert F.nll_loss(calibrated, targets) < F.cross_entropy(logits, targets)
    shares = torch.bincount(targets, minlength=3).double() / len(targets)
    torch.testing.assert_close(calibrated.exp().mean(0), shares, rtol=0, atol=1e-5)  # what free biases ensure


def test_logits_that_say_nothing_leave_the_shares_of_the_classes():
    targets = torch.tensor([0] * 6 + [1] * 3 + [2] * 1)
    shares = torch.tensor([0.6, 0.3, 0.1])
    for logits in (torch.zeros(10, 3), torch.full((10, 3), 5.0), torch.tensor([[9.0, -2.0, 1.0]] * 10)):
        found = fit_calibration(logits, targets).log_probabilities(logits).exp()
        torch.testing.assert_close(found, shares.expand(10, 3), rtol=0, atol=1e-4)


def test_the_answer_does_not_depend_on_the_units_or_the_zero_of_the_logits():
    logits, targets = held_out(4)
    plain = fit_calibration(logits, targets).log_probabilities(logits)
    for other in (1000 * logits, 1e-3 * logits, logits + 50 * torch.randn(len(logits), 1, dtype=torch.float64)):
        found = fit_calibration(other, targets).log_probabilities(other)
        torch.testing.assert_close(found, plain, rtol=0, atol=1e-4)


def test_logits_that_separate_the_classes_stay_finite():
    targets = torch.tensor([0, 1] * 10)
    logits = F.one_hot(targets, 2).float() * 40
    found = fit_calibration(logits, targets).log_probabilities(logits)
    assert torch.isfinite(found).all()
    assert found.argmax(1).equal(targets)


@pytest.mark.parametrize(
    ("logits", "targets", "message"),
    [
        (torch.zeros(3), torch.zeros(3, dtype=torch.long), r"needs logits .*got \(3,\)"),
        (torch.zeros(3, 2), torch.zeros(2, dtype=torch.long), "needs logits"),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.long), "needs logits"),
        (torch.full((3, 2), float("nan")), torch.zeros(3, dtype=torch.long), "finite logits"),
    ],
)
def test_bad_input_is_refused(logits, targets, message):
    with pytest.raises(ValueError, match=message):
        fit_calibration(logits, targets)
