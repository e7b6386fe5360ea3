"""The class margin log p(c) / p(y): p from class counts, from an attribute, or given for each sample (mathematics 2.3)."""

from __future__ import annotations

import torch
from torch import Tensor


def log_ratio(log_prior: Tensor, targets: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """log p_i(c) - log p_i(y_i) (N, C) from log priors (N, C), or (C,) if all samples share one; a constant cancels.

    A class whose prior is zero gets -inf: it takes no part in the softmax.

    >>> log_ratio(torch.tensor([4.0, 1.0, 0.0]).log(), torch.tensor([0])).round(decimals=3)
    tensor([[ 0.0000, -1.3860,    -inf]])
    """
    log_prior = log_prior.detach().to(torch.float64).expand(len(targets), -1)
    return (log_prior - log_prior.gather(1, targets[:, None])).to(dtype)


def joint_counts(
    attributes: Tensor, targets: Tensor, num_attributes: int, num_classes: int, weights: Tensor | None = None
) -> Tensor:
    """How many samples have attribute a and class c: (K, C), in float64; `weights` (N,) let them count differently.

    >>> joint_counts(torch.tensor([0, 0, 1]), torch.tensor([1, 1, 0]), 2, 2).tolist()
    [[0.0, 2.0], [1.0, 0.0]]
    """
    weights = None if weights is None else weights.double()
    flat = torch.bincount(attributes * num_classes + targets, weights, minlength=num_attributes * num_classes)
    return flat.view(num_attributes, num_classes).double()


def conditional_log_prior(counts: Tensor, smoothing: float = 0.5, strength: float = 1.0) -> Tensor:
    """log pi(c | a) (K, C), in float64, of counts (K, C): (n_ac + s C pi_c) / (n_a + s C), with pi_c the classes' shares.

    `smoothing` s is what a pair of attribute and class counts as before any sample is seen, on average over the classes.
    An attribute that nobody has, or that says nothing, gives the prior of logit adjustment. A class without samples has
    -inf everywhere. `strength` is how far the evidence bears it: the rest, in logarithms, is the prior of the classes.

    >>> conditional_log_prior(torch.tensor([[9.0, 0.0], [0.0, 1.0]])).exp()
    tensor([[0.9900, 0.0100],
            [0.4500, 0.5500]], dtype=torch.float64)
    """
    counts = counts.double()
    smoothed = counts + smoothing * counts.shape[1] * counts.sum(0) / counts.sum()
    log_prior = (smoothed / smoothed.sum(1, keepdim=True)).log()
    if strength < 1:
        log_prior = strength * log_prior + (1 - strength) * torch.log_softmax(counts.sum(0).log(), 0)
    return log_prior
