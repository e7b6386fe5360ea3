"""The look-ahead step and its exact gradient, without double backward through the network (mathematics 3.4).

An inner loss L(theta; psi) depends on outer variables psi only through the logits' adjustment, that is through numbers of
size N x C. One virtual SGD step theta' = theta - eta grad L(theta; psi) is tried on metadata; with g = dL_meta/dtheta' the
gradient of the metadata loss is

    dL_meta/dpsi = -eta d/dpsi < g, grad_theta L(theta; psi) > = -eta d/dpsi [ derivative of L at theta along g ]

and the derivative along g needs the logits' tangent alone: one forward-mode pass, no graph of a graph, or a difference of
two forward passes. The engine knows no method: it is given the inner loss as a function of (logits, head weight), and the
tensors psi it was built from.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.autograd.forward_ad as forward_mode
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from icda.errors import InputError
from icda.meta.forward import FixedSigns, Forward, Reusing, replay
from icda.ranks import all_mean, all_means

InnerLoss = Callable[[Tensor, Tensor], Tensor]  # (logits, head weight) -> scalar, with psi in its graph
Mode = Literal["full", "head", "difference"]


@dataclass(frozen=True)
class MetaGradient:
    """dL_meta/dpsi in the order psi was given, and L_meta after the virtual step."""

    gradients: tuple[Tensor, ...]
    meta_loss: Tensor


def look_ahead(
    model: nn.Module,
    forward: Forward,
    inner: InnerLoss,
    outer: Sequence[Tensor],
    meta_inputs: Any,
    meta_targets: Tensor,
    rate: float,
    mode: Mode = "full",
) -> MetaGradient:
    """The gradient of the metadata loss after one virtual SGD step of size `rate`.

    `model` is the bare module (no DDP wrapper) with a linear `head`; `forward` its training pass, whose graph is kept for
    the real step. "full" moves all trainable parameters and is exact. "difference" does the same with the logits' tangent
    taken from one more forward pass at a point nearby. "head" moves the head alone: exact where only the head is trained,
    and one forward pass of the metadata more expensive than plain training elsewhere. BatchNorm buffers are never touched.
    """
    weight, bias = _head_tensors(model)
    logits = forward.output.logits
    point = (logits.detach().requires_grad_(), weight.detach().requires_grad_())
    with torch.enable_grad():
        loss = inner(*point) * _share(logits)
        slopes = torch.autograd.grad(loss, point, create_graph=True, materialize_grads=True)
    if mode == "head":
        moved_head = _move_head(forward.output.features, slopes, weight, bias, rate)
        meta_loss, (to_weight, to_bias) = _meta_pull_head(model, forward, moved_head, meta_inputs, meta_targets)
        tangents = F.linear(forward.output.features.detach(), to_weight, to_bias), to_weight
    else:
        moved = _move_all(model, logits, slopes, rate)
        meta_loss, pull = _meta_pull(model, forward, moved, meta_inputs, meta_targets)
        tangents = _tangents(model, forward, pull, mode)
    along = sum((slope * tangent).sum() for slope, tangent in zip(slopes, tangents, strict=True))
    assert isinstance(along, Tensor)
    gradients = torch.autograd.grad(along, list(outer), allow_unused=True, materialize_grads=True)
    return MetaGradient(tuple(all_means([-rate * gradient for gradient in gradients])), all_mean(meta_loss))


def _move_all(model: nn.Module, logits: Tensor, slopes: Sequence[Tensor], rate: float) -> dict[str, Tensor]:
    """theta' of every trainable parameter, from the slopes at the logits and, directly, at the head's weight."""
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    to_logits, to_weight = (slope.detach() for slope in slopes)
    gradients = torch.autograd.grad(
        logits, list(named.values()), to_logits, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    weight, _ = _head_tensors(model)
    whole = [
        gradient + to_weight if value is weight else gradient
        for value, gradient in zip(named.values(), gradients, strict=True)
    ]
    return {
        name: (value.detach() - rate * mean).requires_grad_()
        for (name, value), mean in zip(named.items(), all_means(whole), strict=True)
    }


def _meta_pull(
    model: nn.Module, forward: Forward, moved: dict[str, Tensor], inputs: Any, targets: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    with torch.enable_grad():
        logits = forward.again(model, moved, inputs).logits
        loss = F.cross_entropy(logits, targets) * _share(targets)
    gradients = torch.autograd.grad(loss, list(moved.values()), allow_unused=True, materialize_grads=True)
    return loss.detach(), dict(zip(moved, all_means(gradients), strict=True))


def _tangents(model: nn.Module, forward: Forward, pull: dict[str, Tensor], mode: Mode) -> tuple[Tensor, Tensor]:
    """Derivatives of logits and head weight along `pull`."""
    tangent = (difference_tangent if mode == "difference" else exact_tangent)(model, forward, pull)
    weight, _ = _head_tensors(model)
    head_name = next(name for name, value in model.named_parameters() if value is weight)
    return tangent, pull.get(head_name, torch.zeros_like(weight))


def _move_head(
    features: Tensor, slopes: Sequence[Tensor], weight: Tensor, bias: Tensor | None, rate: float
) -> tuple[Tensor, Tensor | None]:
    to_logits, to_weight = (slope.detach() for slope in slopes)
    moved = weight.detach() - rate * all_mean(to_logits.T @ features.detach() + to_weight)
    if bias is None:
        return moved.requires_grad_(), None
    return moved.requires_grad_(), (bias.detach() - rate * all_mean(to_logits.sum(0))).requires_grad_()


def _meta_pull_head(
    model: nn.Module, forward: Forward, moved: tuple[Tensor, Tensor | None], inputs: Any, targets: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor | None]]:
    with torch.no_grad():
        parameters = {name: value.detach() for name, value in model.named_parameters()}
        features = forward.again(model, parameters, inputs).features
    weight, bias = moved
    with torch.enable_grad():
        loss = F.cross_entropy(F.linear(features.detach(), weight, bias), targets) * _share(targets)
    if bias is None:
        return loss.detach(), (all_mean(torch.autograd.grad(loss, weight)[0]), None)
    to_weight, to_bias = torch.autograd.grad(loss, (weight, bias))
    return loss.detach(), (all_mean(to_weight), all_mean(to_bias))


def _head_tensors(model: nn.Module) -> tuple[Tensor, Tensor | None]:
    head = model.head
    assert isinstance(head, nn.Module)
    weight, bias = head.weight, getattr(head, "bias", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        raise InputError("the look-ahead needs a model with a linear head: icda.models has adapters that find it.")
    return weight, bias


def _share(samples: Tensor) -> float:
    """This rank's samples against the mean over ranks: a rank with fewer must count for less in a mean of means."""
    count = torch.tensor(float(len(samples)), device=samples.device)
    return float(count / all_mean(count))


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
