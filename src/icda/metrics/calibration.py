"""Whether a classifier is as sure as it is right."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional
from torchmetrics.functional.classification import binary_calibration_error


def calibration_error(logits: Tensor, targets: Tensor, num_bins: int = 15) -> float:
    """The expected calibration error: |accuracy - confidence| averaged over bins of equal width.

    Guo et al., "On Calibration of Modern Neural Networks", ICML 2017. Confidence is the softmax value of the predicted
    class.

    >>> import torch
    >>> round(calibration_error(torch.tensor([[0.0, 3.0], [0.0, 3.0]]), torch.tensor([1, 0])), 4)
    0.4526
    """
    predictions = logits.argmax(dim=1)
    confidence = functional.cross_entropy(logits, predictions, reduction="none").double().neg().exp()
    # torchmetrics gives a confidence of exactly 1 a bin of its own, and logits in [0, 1] pass there for probabilities.
    # So we hand it confidences, just below 1.
    confidence = confidence.clamp(max=1 - 1e-12)
    return float(binary_calibration_error(confidence, predictions.eq(targets).long(), n_bins=num_bins, norm="l1"))


def negative_log_likelihood(logits: Tensor, targets: Tensor) -> float:
    """The mean of -log p(target).

    >>> import torch
    >>> round(negative_log_likelihood(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])), 4)
    0.6931
    """
    return float(functional.cross_entropy(logits, targets, reduction="none").double().mean())
