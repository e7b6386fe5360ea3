"""Held-out logits made into probabilities that keep what they promise."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError

DECAY = 1e-6  # on the scale, in units of the logits' spread: logits that separate the classes would send it to infinity
MAX_ITER = 200


class Calibration(NamedTuple):
    """log softmax(scale z + bias): one temperature for all classes and one bias for each (C,)."""

    scale: Tensor
    bias: Tensor

    def log_probabilities(self, logits: Tensor) -> Tensor:
        return F.log_softmax(logits.double() * self.scale + self.bias, 1).to(logits.dtype)


def fit_calibration(logits: Tensor, targets: Tensor) -> Calibration:
    """The temperature and biases of least cross entropy on logits (N, C) that have not seen their targets.

    The problem is convex, so the answer does not depend on where the search begins. Logits that say nothing get scale 0:
    what is left are the classes' shares.

    >>> logits = torch.tensor([[3.0, 0.0], [3.0, 0.0], [3.0, 0.0], [0.0, 3.0], [0.0, 3.0], [0.0, 3.0]])
    >>> calibration = fit_calibration(logits, torch.tensor([0, 0, 1, 1, 1, 0]))
    >>> calibration.log_probabilities(logits).exp()[0]  # right in two of three cases
    tensor([0.6667, 0.3333])
    """
    check_logits("calibration", logits, targets)
    values = logits.detach().double()
    values = values - values.mean(1, keepdim=True)
    spread = values.std(correction=0).clamp(min=torch.finfo(torch.float64).tiny ** 0.5)
    counts = torch.bincount(targets, minlength=values.shape[1]).double() + 0.5
    start = values.new_zeros(()), (counts / counts.sum()).log()  # near the answer of logits that say nothing
    limits = {"max_iter": MAX_ITER, "tolerance_grad": 1e-8, "tolerance_change": 1e-12}
    scale, bias = fit_scale(values / spread, targets, start, DECAY, **limits)
    return Calibration(scale / spread, bias - bias.mean())


def fit_scale(
    values: Tensor,
    targets: Tensor,
    start: tuple[Tensor, Tensor],
    scale_decay: float,
    bias_decay: float = 0.0,
    **limits: Any,
) -> tuple[Tensor, Tensor]:
    """Scale and biases of least cross entropy to targets (N,) or (N, C), searched for by L-BFGS."""
    scale, bias = (value.clone().requires_grad_() for value in start)
    search = torch.optim.LBFGS([scale, bias], line_search_fn="strong_wolfe", **limits)

    def closure() -> Tensor:
        search.zero_grad()
        loss = F.cross_entropy(values * scale + bias, targets) + scale_decay * scale**2
        loss = loss + bias_decay * bias.square().mean()
        loss.backward()
        return loss

    with torch.enable_grad():
        search.step(closure)
    return scale.detach(), bias.detach()


def check_logits(what: str, logits: Tensor, targets: Tensor) -> None:
    """Refuse held-out logits (N, C) and targets (N,) that nothing can be learned from."""
    if logits.ndim != 2 or logits.shape[1] < 2 or targets.shape != logits.shape[:1] or not len(logits):
        raise InputError(
            f"{what} needs logits (N, C) of two classes or more and targets (N,), got {tuple(logits.shape)} and "
            f"{tuple(targets.shape)}."
        )
    if not torch.isfinite(logits).all():
        raise InputError(f"{what} needs finite logits: the networks they come from have diverged.")
