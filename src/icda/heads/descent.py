"""L-BFGS on heads, whoever evaluates the loss: rows in memory, on disk, of several folds at once, or on other machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from icda.errors import OperationError
from icda.heads.objective import Objective
from icda.heads.threads import quiet_blas

STRICTER = 0.5  # of `tol`, in a metric: slopes as small lie further from the optimum off the steep axes
SAMPLED = 4  # rows per feature that a metric is estimated from
RIDGE = 1e-3  # of the mean variance, for directions that those rows do not show
LEAST_WORK = 10**8  # products in one evaluation from which a metric is looked for; below, it is not worth its own time
METRIC_SHARE = 0.44  # and features^2 at most this share of rows x head's rows: then it costs less than two evaluations


class Descent(NamedTuple):
    """Where L-BFGS stopped: parameters (R, A + 1), the bias last; and how it went."""

    parameters: Tensor
    iterations: int
    converged: bool
    value: float


@dataclass(frozen=True)
class Coordinates:
    """Coordinates in which the loss bends alike in all directions: weight = unknowns @ `turn`, bias for centred features.

    The curvature of softmax losses is near share * covariance of the features + decay, with a share of 1 / C while all
    classes are equally likely. It only steers the way; the optimum is the same in all coordinates.
    """

    mean: Tensor  # (A,)
    turn: Tensor  # (A, A)
    unit: float  # of the bias

    @classmethod
    def of(cls, rows: Tensor, decay: float, share: float) -> Coordinates:
        """From some rows (n, A) of the features."""
        rows = rows.double()
        mean = rows.mean(0)
        centred = rows - mean
        curvature = centred.T @ centred * (share / len(rows))
        ridge = decay + RIDGE * float(curvature.diagonal().mean()) + torch.finfo(torch.float64).tiny
        curvature.diagonal().add_(ridge)
        factor = torch.linalg.cholesky(curvature)
        turn = torch.linalg.solve_triangular(factor, torch.eye(len(factor), dtype=torch.float64), upper=False)
        return cls(mean, turn, share**-0.5)

    def to_head(self, unknowns: Tensor) -> Tensor:
        """Parameters (R, A + 1) of the head, from coordinates."""
        weight = unknowns[:, :-1] @ self.turn
        return torch.cat([weight, (unknowns[:, -1] * self.unit - weight @ self.mean)[:, None]], 1)

    def from_head(self, head: Tensor) -> Tensor:
        """Coordinates of a head: `to_head` undone."""
        weight = torch.linalg.solve_triangular(self.turn, head[:, :-1], upper=False, left=False)
        return torch.cat([weight, ((head[:, -1] + head[:, :-1] @ self.mean) / self.unit)[:, None]], 1)

    def slope(self, slope: Tensor) -> Tensor:
        """The gradient in coordinates, from that in the head."""
        to_weight = slope[:, :-1] - slope[:, -1:] * self.mean
        return torch.cat([to_weight @ self.turn.T, slope[:, -1:] * self.unit], 1)


@quiet_blas()
def descend(
    objective: Objective,
    begin: Tensor,
    decay: float,
    max_iter: int,
    tol: float,
    memory: int,
    metric: Coordinates | None = None,
) -> Descent:
    """Minimise objective(weight, bias) + decay / 2 |weight|^2 from `begin` (R, A + 1), in the dtype of `begin`.

    `tol` bounds the largest entry of the gradient. In a metric it is bounded by `STRICTER` times that, in the features'
    own coordinates and in the metric's at once: then the value is no worse, in half the iterations or fewer.
    """
    run = _Run(objective, begin, decay, tol, metric)
    options = {"maxiter": max_iter, "gtol": tol, "ftol": 0.1 * float(torch.finfo(begin.dtype).eps), "maxcor": memory}
    start = begin.double()
    if metric is None:
        solution = minimize(run.evaluate, start.flatten().numpy(), jac=True, method="L-BFGS-B", options=options)
        parameters = torch.from_numpy(solution.x)
    else:
        options["gtol"] = 0.0
        flat = metric.from_head(start).flatten().numpy()
        first = run.evaluate(flat)
        if run.is_flat:
            return Descent(begin, 0, True, first[0])
        solution = minimize(
            run.evaluate, flat, jac=True, method="L-BFGS-B", options=options, callback=run.stop_where_flat
        )
        parameters = metric.to_head(torch.from_numpy(solution.x).view(begin.shape))
    if not np.isfinite(solution.fun):
        raise OperationError(
            "the fit has become NaN or infinite: look for features of extreme size (scale them, as StandardScaler does) "
            "and for priors or weights that are not finite."
        )
    parameters = parameters.to(begin.dtype).view(begin.shape)
    return Descent(parameters, solution.nit, run.is_flat or solution.nit < max_iter, solution.fun)


class _Run:
    """The function that scipy calls, and how steep it was where it was called last."""

    def __init__(
        self, objective: Objective, begin: Tensor, decay: float, tol: float, metric: Coordinates | None
    ) -> None:
        self.objective, self.decay, self.metric = objective, decay, metric
        self.shape, self.dtype, self.tol = begin.shape, begin.dtype, STRICTER * tol
        self.is_flat = False
        self._last: tuple[np.ndarray, tuple[float, np.ndarray]] | None = None

    def evaluate(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        if self._last is not None and np.array_equal(flat, self._last[0]):
            return self._last[1]  # scipy asks first for what was looked at already
        unknowns = torch.from_numpy(flat).view(self.shape)
        head = (unknowns if self.metric is None else self.metric.to_head(unknowns)).to(self.dtype)
        weight = head[:, :-1].contiguous()
        slope = self.objective(weight, head[:, -1])
        value = slope.value + 0.5 * self.decay * float(weight.square().sum(dtype=torch.float64))
        to_weight = slope.to_weight.add_(weight, alpha=self.decay)
        gradient = torch.cat([to_weight, slope.to_bias[:, None]], 1).double()
        if self.metric is not None:
            steep = float(gradient.abs().max())
            gradient = self.metric.slope(gradient)
            self.is_flat = max(steep, float(gradient.abs().max()) / self.metric.unit) <= self.tol
        found = value, gradient.flatten().numpy()
        if self.metric is not None and self._last is None:
            self._last = flat.copy(), found
        return found

    def stop_where_flat(self, intermediate_result: object) -> None:
        if self.is_flat:
            raise StopIteration
