"""The paper's table 1 as code: which regularisers hide in the losses.

With u the plain logits, du the adjustment and q = softmax(u), cross entropy expands to

    CE(u + du) = CE(u) + (q - onehot).du + 1/2 du^T (diag(q) - q q^T) du + ...

so that to first order a loss that adjusts logits is cross entropy plus R = (q - onehot).du. The adjustment is zero at the
target, and R splits into the terms below.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputTypeError
from icda.functional.quadratic import mean_term, quadratic_form
from icda.losses import AdjustedLoss, ICDALoss, ISDALoss, LogitAdjustmentLoss, RISDALoss
from icda.losses.head import Head, head_parameters
from icda.losses.prior_loss import PriorLoss

FACTORS = {
    "logit_adjustment": ("class_margin",),
    "isda": ("compactness",),
    "risda": ("compactness", "boundary_distance"),
    "icda": ("class_margin", "compactness", "boundary_distance", "sample_margin"),
}


class Regulariser(NamedTuple):
    """The parts of R for every sample (N,); a part that a loss does not have is zero.

    * `class_margin`: sum_{c != y} q_c log(pi_c / pi_y), larger margins for rare classes.
    * `compactness`: sum_{c != y} q_c times the mapped variances on the boundary between y and c.
    * `boundary_distance`: sum_{c != y} q_c times how far means lie from that boundary.
    * `sample_margin`: beta alpha_i (1 - q_y), larger margins for samples tied to another class.
    """

    class_margin: Tensor
    compactness: Tensor
    boundary_distance: Tensor
    sample_margin: Tensor

    @property
    def total(self) -> Tensor:
        return self.class_margin + self.compactness + self.boundary_distance + self.sample_margin


@torch.no_grad()
def regulariser(
    loss: AdjustedLoss,
    features: Tensor,
    targets: Tensor,
    head: Head,
    progress: float = 1.0,
    *,
    as_printed: bool = False,
    attributes: Tensor | None = None,
    log_prior: Tensor | None = None,
) -> Regulariser:
    """R of a loss for a batch, part by part, as in table 1.

    Reads the loss's statistics and leaves them as they are. `as_printed` gives the sample margin of ICDA as the table
    prints it, -beta alpha_i q_y: less than the first-order term by beta alpha_i, which has no gradient. `attributes`
    and `log_prior` are those of the loss's call.

    Reference: table 1 of arXiv 2304.13431. RISDA is that of `RISDALoss`, whose mean is centred and whose quadratic term
    is halved (mathematics 3.2); the table prints neither.

    >>> loss, head = LogitAdjustmentLoss(2, 1, torch.tensor([3.0, 1.0])), torch.nn.Linear(1, 2)
    >>> terms = regulariser(loss, torch.zeros(1, 1), torch.tensor([1]), (torch.zeros(2, 1), None))
    >>> terms.total.round(decimals=4)  # q is one half, log 3 the class margin
    tensor([0.5493])
    """
    weight, bias = head_parameters(head)
    off_target = F.softmax(F.linear(features, weight, bias), 1).scatter(1, targets[:, None], 0)
    none = class_margin = torch.zeros_like(features[:, 0])
    if isinstance(loss, PriorLoss):
        priors = loss.prior_margin(targets, weight.dtype, attributes, log_prior)
        class_margin = none if priors is None else _sum(off_target, priors)
    if type(loss) is ICDALoss:
        parts = _icda(loss, features, targets, weight, off_target, progress, as_printed)
        return parts._replace(class_margin=class_margin)
    if type(loss) is RISDALoss:
        return _risda(loss, targets, weight, off_target, progress)
    if type(loss) is ISDALoss:
        own = F.one_hot(targets, loss.num_classes).to(weight)
        moments = loss.statistics.moments().to(weight.dtype)
        variance = quadratic_form(weight, targets, own, moments)
        return Regulariser(none, 0.5 * loss.lambda0 * progress * _sum(off_target, variance), none, none)
    if type(loss) is LogitAdjustmentLoss:
        return Regulariser(loss.tau * class_margin, none, none, none)
    raise InputTypeError(
        f"table 1 knows {', '.join(FACTORS)}, got {type(loss).__name__}: `first_order_term` works for any adjustment."
    )


def first_order_term(logits: Tensor, targets: Tensor, adjustment: Tensor) -> Tensor:
    """(q - onehot).du (N,), for any adjustment (N, C) of logits (N, C).

    >>> first_order_term(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([[0.0, 1.0]]))
    tensor([0.5000])
    """
    slope = F.softmax(logits, 1) - F.one_hot(targets, logits.shape[1]).to(logits)
    return (slope * adjustment).sum(1)


def second_order_term(logits: Tensor, adjustment: Tensor) -> Tensor:
    """1/2 du^T (diag(q) - q q^T) du (N,), half the variance of the adjustment under q: never negative.

    >>> second_order_term(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]))
    tensor([0.1250])
    """
    probabilities = F.softmax(logits, 1)
    mean = (probabilities * adjustment).sum(1, keepdim=True)
    return 0.5 * (probabilities * (adjustment - mean).square()).sum(1)


def _icda(
    loss: ICDALoss, features: Tensor, targets: Tensor, weight: Tensor, q: Tensor, progress: float, as_printed: bool
) -> Regulariser:
    strength, lam = loss.strength(features, targets, weight), loss.lambda0 * progress
    towards = strength.per_class / (loss.num_classes - 1)
    moments = loss.statistics.moments().to(weight.dtype)
    coefficients = towards if loss.counterfactual else torch.zeros_like(towards)
    if loss.semantic:
        coefficients = coefficients.scatter(1, targets[:, None], 1)
    variance = quadratic_form(weight, targets, coefficients, moments)
    none = torch.zeros_like(q[:, 0])
    distance = none
    if loss.counterfactual:
        distance = lam * _sum(q, mean_term(weight, targets, towards, moments.mean))
    margin = none
    if loss.sample_margin:
        wrong = q.sum(1)  # 1 - q_y
        margin = loss.beta * strength.per_sample * (wrong - 1 if as_printed else wrong)
    return Regulariser(none, 0.5 * lam * _sum(q, variance), distance, margin)


def _risda(loss: RISDALoss, targets: Tensor, weight: Tensor, q: Tensor, progress: float) -> Regulariser:
    relations, own = loss.relations()[targets].to(weight), F.one_hot(targets, loss.num_classes).to(weight)
    moments = loss.statistics.moments().to(weight.dtype)
    mixing = torch.where(loss.keeps_own[targets][:, None], own, relations)
    variance = quadratic_form(weight, targets, mixing, moments)
    shift = (relations - own) @ moments.mean
    moved = shift @ weight.T - (shift * weight[targets]).sum(1, keepdim=True)
    none = torch.zeros_like(q[:, 0])
    compactness = 0.5 * loss.lambda0 * progress * _sum(q, variance)
    return Regulariser(none, compactness, loss.mean_strength * progress * _sum(q, moved), none)


def _sum(q: Tensor, values: Tensor) -> Tensor:
    """sum_{c != y} q_c v_c; a class that never occurs (v = -inf, q of no interest) counts nothing."""
    return torch.where(torch.isfinite(values), q * values, 0).sum(1)
