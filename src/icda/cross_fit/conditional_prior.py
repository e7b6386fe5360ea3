"""How likely each class is, given what is known of a sample besides its class: an attribute, or a network's answer."""

from __future__ import annotations

import torch
from torch import Tensor

from icda.errors import InputError

PSEUDO_SAMPLES = 1.0  # what the classes' shares weigh against an attribute's own counts


def joint_counts(attributes: Tensor, targets: Tensor, num_attributes: int, num_classes: int) -> Tensor:
    """How many samples have attribute a and class c: (K, C), in float64.

    >>> joint_counts(torch.tensor([0, 0, 1]), torch.tensor([1, 1, 0]), 2, 2).tolist()
    [[0.0, 2.0], [1.0, 0.0]]
    """
    flat = torch.bincount(attributes * num_classes + targets, minlength=num_attributes * num_classes)
    return flat.view(num_attributes, num_classes).double()


def conditional_log_prior(counts: Tensor, pseudo_samples: float = PSEUDO_SAMPLES) -> Tensor:
    """log pi(c | a) of a table of counts (K, C), in float64: (n_ac + s pi_c) / (n_a + s), with pi_c the classes' shares.

    An attribute nobody has, and one that says nothing, give the classes' shares: logit adjustment.

    >>> conditional_log_prior(torch.tensor([[9.0, 0.0], [0.0, 1.0]])).exp()
    tensor([[0.9900, 0.0100],
            [0.4500, 0.5500]], dtype=torch.float64)
    """
    if counts.ndim != 2 or (counts < 0).any() or not torch.isfinite(counts).all() or counts.sum() == 0:
        raise InputError(
            f"a conditional prior needs counts (attributes, classes), none of them negative, some positive; got {counts}."
        )
    if not 0 < pseudo_samples < float("inf"):
        raise InputError(f"pseudo_samples is a positive number, got {pseudo_samples}: 0 would allow log 0.")
    counts = counts.double()
    shares = counts.sum(0) / counts.sum()
    # A class that no sample has is as unlikely whatever the attribute; half a sample keeps its logarithm finite.
    shares = torch.where(shares > 0, shares, 0.5 / counts.sum())
    smoothed = counts + pseudo_samples * shares
    return (smoothed / smoothed.sum(1, keepdim=True)).log()


def answer_log_prior(answers: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """log P(y | answer) of every sample (N, C), counted over the samples: the answer is taken for an attribute.

    >>> answer_log_prior(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1]), 2).exp()[0]
    tensor([0.8333, 0.1667])
    """
    counts = joint_counts(answers, targets, num_classes, num_classes)
    return conditional_log_prior(counts).float()[answers]
