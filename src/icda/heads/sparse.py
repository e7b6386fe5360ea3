"""A linear head with an L1 penalty, fitted to all samples at once by accelerated proximal gradient steps."""

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.heads.solver import LinearHead

POWER_STEPS = 30
STEP_SLACK = 1.02  # power iteration comes to the largest eigenvalue from below


@torch.no_grad()
def fit_sparse_head(
    features: Tensor,
    targets: Tensor,
    num_classes: int,
    l1: float,
    weights: Tensor | None = None,
    *,
    max_iter: int = 2000,
    tol: float = 1e-4,
    start: LinearHead | None = None,
) -> LinearHead:
    """Minimise sum_i m_i CE(W h_i + b, y_i) + l1 sum_cj |w_cj|, with m the `weights` (N,) divided by their sum.

    For two classes this is the logistic regression with one weight vector w_1 - w_0 and the same penalty: scikit-learn's
    C is 1 / (N l1). Steps are those of FISTA, whose momentum starts again whenever it leads uphill; `tol` bounds the
    largest entry of the generalised gradient, which is zero at the optimum. Features should be standardised: the penalty
    treats all alike, and the number of steps grows with the spread of their scales.

    >>> features = torch.tensor([[-1.0, 0.1], [-0.5, -0.1], [0.5, 0.1], [1.0, -0.1]])
    >>> head = fit_sparse_head(features, torch.tensor([0, 0, 1, 1]), 2, l1=0.05)
    >>> (head.weight != 0).any(0).tolist(), head.logits(features).argmax(1).tolist()
    ([True, False], [0, 0, 1, 1])
    """
    mass = torch.ones(len(targets)) if weights is None else weights
    mass = (mass / mass.sum()).to(features)
    rows = torch.cat([features, features.new_ones(len(features), 1)], 1)  # the bias is a weight of a constant
    step = 1 / (STEP_SLACK * _curvature(rows, mass))
    threshold = torch.full((rows.shape[1],), step * l1).to(rows)
    threshold[-1] = 0  # and bears no penalty
    one_hot = F.one_hot(targets, num_classes).to(rows)
    now = rows.new_zeros(num_classes, rows.shape[1]) if start is None else start.parameters.to(rows)
    ahead, momentum, done, converged = now, 1.0, 0, False
    for done in range(1, max_iter + 1):  # noqa: B007 - read after the loop
        slope = ((rows @ ahead.T).softmax(1).sub_(one_hot).mul_(mass[:, None])).T @ rows
        following = ahead - step * slope
        following = following.sign() * (following.abs() - threshold).clamp_(min=0)
        moved = ahead - following
        converged = float(moved.abs().max()) <= step * tol
        if converged:
            now = following
            break
        if float((moved * (following - now)).sum()) > 0:
            momentum = 1.0
        grown = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = following + (momentum - 1) / grown * (following - now)
        now, momentum = following, grown
    losses = F.cross_entropy(rows @ now.T, targets, reduction="none")
    value = float((mass * losses).sum() + l1 * now[:, :-1].abs().sum())
    return LinearHead(now[:, :-1].clone(), now[:, -1].clone(), done, converged, value)


def _curvature(rows: Tensor, mass: Tensor) -> float:
    """A bound of the Hessian: half the largest eigenvalue of sum_i m_i h_i h_i^T, as no softmax bends more than 1/2."""
    vector = torch.ones(rows.shape[1]).to(rows)
    size = vector.norm()
    for _ in range(POWER_STEPS):
        vector = rows.T @ (mass * (rows @ (vector / size)))
        size = vector.norm()
    return 0.5 * float(size)
