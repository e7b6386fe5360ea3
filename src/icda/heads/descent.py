"""L-BFGS on heads, whoever evaluates the loss: rows in memory, on disk, of several folds at once, or on other machines."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from icda.errors import OperationError
from icda.heads.objective import Objective
from icda.heads.threads import quiet_blas

STRICTER = 0.5  # of `tol`, in a metric: slopes as small lie further from the optimum off the steep axes
RIDGE = 1e-3  # of the mean variance, for directions that those rows do not show
LEAST_WORK = 10**8  # products in one evaluation from which a metric is looked for; below, it is not worth its own time
LEAST_AUGMENTED = 2 * 10**7  # the same for losses with covariances, which are stiffer
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

    Augmentation adds curvature of its own along each row w of the weight, where its derivative moves the features by lambda
    Sigma w. Where rows are known roughly, their `directions` are made shorter by `factors` (`stretched`).
    """

    mean: Tensor  # (A,)
    turn: Tensor  # (A, A)
    unit: float  # of the bias
    directions: Tensor | None = None  # (R, A), of length one
    factors: Tensor | None = None  # (R, 1), below one

    @classmethod
    def of(cls, rows: Tensor, decay: float, share: float) -> Self:
        """From some rows (n, A) of the features."""
        mean = rows.mean(0)
        centred = rows - mean
        mean, curvature = mean.double(), (centred.T @ centred).double() * (share / len(rows))
        ridge = decay + RIDGE * float(curvature.diagonal().mean()) + torch.finfo(torch.float64).tiny
        curvature.diagonal().add_(ridge)
        factor = torch.linalg.cholesky(curvature)
        turn = torch.linalg.solve_triangular(factor, torch.eye(len(factor), dtype=torch.float64), upper=False)
        return cls(mean, turn, share**-0.5)

    def stretched(self, head: Tensor, lam: float) -> Self:
        """For an augmented loss, near a head: a row whose logit has variance v bends 1 + lambda^2 v times along itself."""
        rows = self.from_head(head.double())[:, :-1]
        rows = rows - rows.mean(0)
        squares = rows.square().sum(1, keepdim=True).clamp(min=1e-300)
        return replace(self, directions=rows / squares.sqrt(), factors=(1 + (lam * self.unit) ** 2 * squares) ** -0.5)

    def scaled(self, length: float) -> Self:
        """In another unit of length."""
        return replace(self, turn=length * self.turn, unit=length * self.unit)

    def to_head(self, unknowns: Tensor) -> Tensor:
        """Parameters (R, A + 1) of the head, from coordinates."""
        weight = self.along(unknowns[:, :-1]) @ self.turn
        return torch.cat([weight, (unknowns[:, -1] * self.unit - weight @ self.mean)[:, None]], 1)

    def from_head(self, head: Tensor) -> Tensor:
        """Coordinates of a head: `to_head` undone."""
        weight = torch.linalg.solve_triangular(self.turn, head[:, :-1], upper=False, left=False)
        weight = self.along(weight, undo=True)
        return torch.cat([weight, ((head[:, -1] + head[:, :-1] @ self.mean) / self.unit)[:, None]], 1)

    def slope(self, slope: Tensor, stretch: bool = True) -> Tensor:
        """The gradient in coordinates, or in those that were not stretched, from that in the head."""
        to_weight = (slope[:, :-1] - slope[:, -1:] * self.mean) @ self.turn.T
        return torch.cat([self.along(to_weight) if stretch else to_weight, slope[:, -1:] * self.unit], 1)

    def along(self, rows: Tensor, undo: bool = False) -> Tensor:
        """Rows with the part along their directions multiplied by the factors, or divided."""
        if self.directions is None or self.factors is None:
            return rows
        change = (1 / self.factors if undo else self.factors) - 1
        return rows + change * (rows * self.directions).sum(1, keepdim=True) * self.directions


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
    options = {"maxiter": max_iter, "gtol": tol, "ftol": 0.1 * float(torch.finfo(begin.dtype).eps), "maxcor": memory}
    run = _Run(objective, begin, decay, tol, metric)
    start = begin.double()
    if metric is None:
        solution = minimize(run.evaluate, start.flatten().numpy(), jac=True, method="L-BFGS-B", options=options)
        parameters = torch.from_numpy(solution.x)
    else:
        options["gtol"] = 0.0
        value, gradient = run.evaluate(metric.from_head(start).flatten().numpy())
        if run.is_flat:
            return Descent(begin, 0, True, value)
        # scipy's first step has length one: near the optimum too far, and in a metric the gradient's length is about right.
        length = min(max(float(np.linalg.norm(gradient)), 1e-300), 1.0)
        run.metric = metric = metric.scaled(length)
        flat = metric.from_head(start).flatten().numpy()
        run.known = flat.copy(), (value, length * gradient)
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
        self.known: tuple[np.ndarray, tuple[float, np.ndarray]] | None = None  # where scipy begins, and what is there

    def evaluate(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        if self.known is not None and np.array_equal(flat, self.known[0]):
            return self.known[1]
        unknowns = torch.from_numpy(flat).view(self.shape)
        head = (unknowns if self.metric is None else self.metric.to_head(unknowns)).to(self.dtype)
        weight = head[:, :-1].contiguous()
        slope = self.objective(weight, head[:, -1])
        value = slope.value + 0.5 * self.decay * float(weight.square().sum(dtype=torch.float64))
        to_weight = slope.to_weight.add_(weight, alpha=self.decay)
        gradient = torch.cat([to_weight, slope.to_bias[:, None]], 1).double()
        if self.metric is not None:
            steep, gradient = float(gradient.abs().max()), self.metric.slope(gradient, stretch=False)
            self.is_flat = max(steep, float(gradient.abs().max()) / self.metric.unit) <= self.tol
            gradient[:, :-1] = self.metric.along(gradient[:, :-1])
        return value, gradient.flatten().numpy()

    def stop_where_flat(self, intermediate_result: object) -> None:
        if self.is_flat:
            raise StopIteration
