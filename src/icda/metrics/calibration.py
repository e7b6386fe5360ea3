"""Whether a classifier is as sure as it is right."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


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
    confidence = confidence.clamp(max=1 - 1e-12)  # a confidence of 1 belongs to the last bin
    edges = torch.linspace(0, 1, num_bins + 1, dtype=confidence.dtype, device=confidence.device)
    bins = torch.bucketize(confidence, edges, right=True) - 1
    count = torch.bincount(bins, minlength=len(edges)).double()
    sure = torch.bincount(bins, weights=confidence, minlength=len(edges)) / count
    right = torch.bincount(bins, weights=predictions.eq(targets).double(), minlength=len(edges)) / count
    gaps = (right - sure).abs().nan_to_num()  # an empty bin has 0 / 0
    return float((gaps * (count / count.sum())).sum())


def negative_log_likelihood(logits: Tensor, targets: Tensor) -> float:
    """The mean of -log p(target).

    >>> import torch
    >>> round(negative_log_likelihood(torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])), 4)
    0.6931
    """
    return float(functional.cross_entropy(logits, targets, reduction="none").double().mean())
