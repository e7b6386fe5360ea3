"""The paper's table 1 as code: which regularisers hide in the losses.

With u the plain logits, du the adjustment and q = softmax(u), cross entropy expands to

    CE(u + du) = CE(u) + (q - onehot).du + 1/2 du^T (diag(q) - q q^T) du + ...

so that to first order a loss that adjusts logits is cross entropy plus R = (q - onehot).du. The adjustment is zero at the
target, and R splits into the terms below.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputTypeError
from icda.functional.augmentation import icda_coefficients, off_target, risda_adjustment, variance_term
from icda.functional.quadratic import mean_term
from icda.losses import AdjustedLoss, ICDALoss, ISDALoss, LogitAdjustmentLoss, RISDALoss
from icda.losses.head import Head, head_parameters

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
    """R of a loss for a batch, part by part, as in table 1 of arXiv 2304.13431.

    `as_printed` gives the sample margin of ICDA as the table prints it, -beta alpha_i q_y: less than the first-order
    term by beta alpha_i, which has no gradient. `attributes` and `log_prior` are those of the loss's call. Where
    `variance_bound` acts, the compactness is the bounded one. RISDA is that of `RISDALoss`, whose mean is centred and
    whose quadratic term is halved (mathematics 3.2); the table prints neither.

    >>> loss, head = LogitAdjustmentLoss(2, 1, torch.tensor([3.0, 1.0])), torch.nn.Linear(1, 2)
    >>> terms = regulariser(loss, torch.zeros(1, 1), torch.tensor([1]), (torch.zeros(2, 1), None))
    >>> terms.total.round(decimals=4)  # q is one half, log 3 the class margin
    tensor([0.5493])
    """
    if type(loss) not in (LogitAdjustmentLoss, ISDALoss, RISDALoss, ICDALoss):
        raise InputTypeError(
            f"table 1 knows {', '.join(FACTORS)}, got {type(loss).__name__}: `first_order_term` works for any adjustment."
        )
    weight, bias = head_parameters(head)
    wrong = F.softmax(F.linear(features, weight, bias), 1).scatter(1, targets[:, None], 0)
    parts: dict[str, Tensor | None] = {}
    if isinstance(loss, LogitAdjustmentLoss | ICDALoss):
        parts["class_margin"] = loss.prior_margin(targets, weight.dtype, attributes, log_prior)
    if isinstance(loss, ISDALoss):
        parts["compactness"] = loss.adjustment(features, targets, head, progress)
    if isinstance(loss, RISDALoss):
        moments, relations = loss.statistics.moments(), loss.relations().to(weight)
        moved = risda_adjustment(weight, targets, moments, 0.0, loss.mean_strength * progress, relations)
        parts["boundary_distance"] = moved
        parts["compactness"] = loss.adjustment(features, targets, head, progress) - moved
    if isinstance(loss, ICDALoss):
        strength, lam = loss.strength(features, targets, weight), loss.lambda0 * progress
        moments = loss.statistics.moments().to(weight.dtype)
        coefficients, towards = icda_coefficients(targets, strength, loss.semantic, loss.counterfactual)
        parts["compactness"] = variance_term(weight, targets, coefficients, moments, lam, bound=loss.variance_bound)
        parts["boundary_distance"] = (
            None if towards is None else lam * mean_term(weight, targets, towards, moments.mean)
        )
        margin = loss.beta * loss.sample_margin * strength.per_sample
        parts["sample_margin"] = off_target(margin, targets, loss.num_classes)
    none = torch.zeros_like(features[:, 0])
    # A class that never occurs (a margin of -inf) counts nothing.
    sums = {name: torch.where(phi.isfinite(), wrong * phi, 0).sum(1) for name, phi in parts.items() if phi is not None}
    terms = Regulariser(*(sums.get(name, none) for name in Regulariser._fields))
    if as_printed and isinstance(loss, ICDALoss):
        terms = terms._replace(sample_margin=terms.sample_margin - margin)
    return terms


def first_order_term(logits: Tensor, targets: Tensor, adjustment: Tensor) -> Tensor:
    """(q - onehot).du (N,), for any adjustment (N, C) of logits (N, C).

    >>> first_order_term(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([[0.0, 1.0]]))
    tensor([0.5000])
    """
    slope = F.softmax(logits, 1) - F.one_hot(targets, logits.shape[1]).to(logits)
    return (slope * adjustment).sum(1)
