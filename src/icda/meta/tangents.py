"""The derivative of a network's logits along a direction of its parameters: exactly, or as a difference."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.autograd.forward_ad as forward_mode
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from icda.errors import InputError
from icda.meta.forward import Forward, replay
from icda.meta.reuse import FixedSigns, Reusing


def exact_tangent(model: nn.Module, forward: Forward, direction: dict[str, Tensor]) -> Tensor:
    """d/de logits(theta + e direction) at e = 0 (N, C), by one forward-mode pass.

    Where `forward` has a recording, layers have their outputs from there, and only their tangents are computed.
    """
    parameters = dict(model.named_parameters())
    calls = [] if forward.recording is None else forward.recording.calls
    # Fused attention kernels have no forward-mode derivative; the plain one gives the same numbers.
    attention = sdpa_kernel(SDPBackend.MATH)
    with torch.no_grad(), forward_mode.dual_level(), replay(forward.random_state), attention, Reusing(calls):
        duals = {name: forward_mode.make_dual(parameters[name].detach(), value) for name, value in direction.items()}
        logits = forward.again(model, duals, forward.inputs).logits
        tangent = forward_mode.unpack_dual(logits).tangent
    # None where nothing on the way to the logits is trained.
    return torch.zeros_like(logits) if tangent is None else tangent.detach()


def difference_tangent(
    model: nn.Module, forward: Forward, direction: dict[str, Tensor], step: float | None = None
) -> Tensor:
    """(logits(theta + step direction) - logits(theta)) / step (N, C), by one plain forward pass.

    Where `forward` has a recording, ReLUs are open where they were open in it (`FixedSigns`), and the error is that of
    rounding and curvature alone; `step` is then chosen to make both small (`difference_step`).
    """
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    step = difference_step(parameters, direction) if step is None else step
    if step == 0:
        return torch.zeros_like(forward.output.logits)
    calls = [] if forward.recording is None else forward.recording.calls
    moved = {name: parameters[name] + step * value for name, value in direction.items()}
    with torch.no_grad(), replay(forward.random_state), FixedSigns(calls), _refusing_half_precision(model):
        logits = forward.again(model, moved, forward.inputs).logits
        return (logits - forward.output.logits.detach()) / step


def difference_step(parameters: dict[str, Tensor], direction: dict[str, Tensor]) -> float:
    """How far to go along `direction`: until the layer that moves most has changed by sqrt(eps) of its norm.

    Rounding contributes eps over that share to the relative error, curvature a multiple of the share itself: their sum is
    small where both are alike. A layer counts by its own norm because BatchNorm makes a network blind to the scale of
    each. Vectors (biases, norms' weights) and matrices that are zero have no such scale and follow. 0 for no direction.

    >>> weights, along = {"w": torch.full((2, 2), 3.0)}, {"w": torch.full((2, 2), 6.0)}
    >>> difference_step(weights, along) == 0.5 * torch.finfo(torch.float32).eps ** 0.5
    True
    """
    lengths = {name: float(value.norm()) for name, value in direction.items()}
    if not any(lengths.values()):
        return 0.0
    scales = {name: float(parameters[name].norm()) for name, value in direction.items() if value.dim() > 1}
    shares = [lengths[name] / scale for name, scale in scales.items() if scale > 0 and lengths[name] > 0]
    eps = max(torch.finfo(value.dtype).eps for value in direction.values())
    return eps**0.5 / max(shares, default=math.hypot(*lengths.values()))


@contextmanager
def _refusing_half_precision(model: nn.Module) -> Iterator[None]:
    """Logits of eight bits, which autocast makes inside of the network, leave nothing of a difference."""

    def look(_: nn.Module, __: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.dtype in (torch.float16, torch.bfloat16):
            raise InputError(
                f'lookahead="difference" compares two forward passes, whose difference {output.dtype} cannot hold: train '
                'in float32 (--precision no), or take lookahead="full".'
            )

    assert isinstance(model.head, nn.Module)
    handle = model.head.register_forward_hook(look)
    try:
        yield
    finally:
        handle.remove()
