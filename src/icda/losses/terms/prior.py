"""The class-wise margin delta_{i,c} = log p(c) / p(y_i), with p from class counts, an attribute, or given per sample."""

from __future__ import annotations

import torch
from torch import Tensor

from icda.errors import InputError

UNSEEN = 0.5  # samples of weight one that a pair of class and attribute without any counts as in the prior


def prior_term(class_counts: Tensor, targets: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """log(pi_c / pi_y) (N, C). A class without training samples gets -inf: it takes no part in the softmax.

    >>> prior_term(torch.tensor([4.0, 1.0, 0.0]), torch.tensor([0])).round(decimals=3)
    tensor([[ 0.0000, -1.3860,    -inf]])
    """
    targets = check_counted(class_counts, targets)
    log_prior = class_counts.to(torch.float64).log()
    return (log_prior[None, :] - log_prior[targets][:, None]).to(dtype)


def log_ratio(log_prior: Tensor, targets: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """log p_i(c) - log p_i(y_i) (N, C) of priors (N, C) that each sample has of its own, up to a constant per sample.

    >>> log_ratio(torch.tensor([[0.0, 2.0], [1.0, 3.0]]), torch.tensor([0, 1]))
    tensor([[ 0.,  2.],
            [-2.,  0.]])
    """
    log_prior = log_prior.detach().to(torch.float64)
    return (log_prior - log_prior.gather(1, targets[:, None])).to(dtype)


def attribute_log_prior(counts: Tensor, unit: float = 1.0) -> Tensor:
    """log pi(c | a) up to a constant per row, from how many samples have attribute a and class c (K, C).

    A pair without samples counts as half a sample of weight one, whose mass is `unit`, and never more than the rarest pair
    that has some. A class without any sample gets -inf.

    >>> attribute_log_prior(torch.tensor([[9.0, 1.0, 0.0], [0.0, 5.0, 0.0]])).exp()
    tensor([[9.0000, 1.0000, 0.0000],
            [0.5000, 5.0000, 0.0000]], dtype=torch.float64)
    """
    counts = counts.to(torch.float64)
    rarest = counts.masked_fill(counts <= 0, torch.inf).min()
    return counts.clamp(min=rarest.clamp(max=UNSEEN * unit)).masked_fill(counts.sum(0) == 0, 0).log()


def check_counted(class_counts: Tensor, targets: Tensor) -> Tensor:
    """The targets; a class that was counted zero times means that the counts are not those of the training labels."""
    if torch.compiler.is_compiling():
        from icda.losses.terms.operators import counted_labels  # registers operators, which only a graph needs

        return counted_labels(targets, class_counts)
    missing = class_counts[targets] == 0
    if missing.any():
        raise InputError(
            f"the batch holds class {int(targets[missing][0])}, whose class_counts entry is 0: "
            "give the counts of the training labels."
        )
    return targets
