"""How the optimum of a head moves with whatever shapes its loss.

At the optimum the gradient G(w, theta) is zero, so dw/dtheta = -H^-1 dG/dtheta. For a loss L of the optimum,
dL/dtheta = -(H^-1 dL/dw)^T dG/dtheta: one linear system for all of theta, however many numbers that is. A look-ahead step
of rate eta is the same with eta in place of H^-1 (mathematics 3.3); on fixed features the real thing costs little more.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from icda.heads.solver import LinearHead

Pair = tuple[Tensor, Tensor]  # of the shapes of weight (C, A) and bias (C,)


class Optimum:
    """A fitted head with the curvature around it.

    `loss` maps logits without bias (N, C) and bias (C,) to the mean loss, weight decay not included. It may hold tensors
    that require gradients: those are theta.
    """

    def __init__(
        self, features: Tensor, head: LinearHead, decay: float, loss: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        self.features, self.decay = features, decay
        self.plain = (features @ head.weight.T).requires_grad_()
        self.bias = head.bias.clone().requires_grad_()
        with torch.enable_grad():
            value = loss(self.plain, self.bias)
            self.gradient = torch.autograd.grad(value, (self.plain, self.bias), create_graph=True)

    def curvature(self, direction: Pair) -> Pair:
        """H v, of the loss with its weight decay."""
        tangents = (self.features @ direction[0].T, direction[1])
        turned = torch.autograd.grad(self.gradient, (self.plain, self.bias), tangents, retain_graph=True)
        return turned[0].T @ self.features + self.decay * direction[0], turned[1]

    def solve(self, wanted: Pair, iterations: int = 15, tol: float = 1e-3) -> Pair:
        """H^-1 v by conjugate gradients, until the residual is `tol` of what it was.

        Adding a constant to all biases changes nothing, so H is singular there; a gradient has no part in that direction
        and conjugate gradients never leave where they started.
        """
        solution = (torch.zeros_like(wanted[0]), torch.zeros_like(wanted[1]))
        residual = direction = wanted
        size = first = _dot(residual, residual)
        for _ in range(iterations):
            if size <= tol**2 * first:
                break
            bent = self.curvature(direction)
            step = size / _dot(direction, bent)
            solution = _add(solution, direction, step)
            residual = _add(residual, bent, -step)
            size, before = _dot(residual, residual), size
            direction = _add(residual, direction, size / before)
        return solution

    def response(self, solution: Pair) -> Tensor:
        """A number whose gradient in theta is that of the outer loss through the optimum."""
        return -(self.gradient[0] * (self.features @ solution[0].T)).sum() - (self.gradient[1] * solution[1]).sum()


def _dot(first: Pair, second: Pair) -> float:
    return float((first[0] * second[0]).sum() + (first[1] * second[1]).sum())


def _add(base: Pair, other: Pair, scale: float) -> Pair:
    return base[0] + scale * other[0], base[1] + scale * other[1]
