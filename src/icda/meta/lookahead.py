"""The look-ahead step and its exact gradient, without double backward through the network (mathematics 3.4).

An inner loss L(theta; psi) depends on outer variables psi only through the logits' adjustment, that is through numbers of
size N x C. One virtual SGD step theta' = theta - eta grad L(theta; psi) is tried on metadata; with g = dL_meta/dtheta' the
gradient of the metadata loss is

    dL_meta/dpsi = -eta d/dpsi < g, grad_theta L(theta; psi) > = -eta d/dpsi [ derivative of L at theta along g ]

and the derivative along g needs the logits' tangent alone: one forward-mode pass, no graph of a graph. The engine knows no
method: it is given the inner loss as a function of (logits, head weight), and the tensors psi it was built from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
import torch.autograd.forward_ad as forward_mode
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from icda.errors import InputError
from icda.ranks import all_mean

InnerLoss = Callable[[Tensor, Tensor], Tensor]  # (logits, head weight) -> scalar, with psi in its graph
Mode = Literal["full", "head"]


class Output(Protocol):
    """What a model returns: the head's input and output."""

    @property
    def features(self) -> Tensor: ...

    @property
    def logits(self) -> Tensor: ...


@dataclass(frozen=True)
class Forward:
    """A training forward pass that the virtual and the real step share."""

    inputs: Any
    output: Output
    random_state: list[Tensor]  # before the pass, so that dropout draws the same masks when it is looked at again

    @classmethod
    def of(cls, network: nn.Module, inputs: Any) -> Forward:
        state = _random_state()
        return cls(inputs, network(inputs), state)


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
    """The exact gradient of the metadata loss after one virtual SGD step of size `rate`.

    `model` is the bare module (no DDP wrapper) with a linear `head`; `forward` its training pass, whose graph is kept for
    the real step. "full" moves all trainable parameters, "head" the head alone: exact where only the head is trained, and
    one forward pass of the metadata more expensive than plain training elsewhere. BatchNorm buffers are never touched.
    """
    weight, bias = _head_tensors(model)
    logits = forward.output.logits
    point = (logits.detach().requires_grad_(), weight.detach().requires_grad_())
    with torch.enable_grad():
        loss = inner(*point) * _share(logits)
        slopes = torch.autograd.grad(loss, point, create_graph=True, materialize_grads=True)
    if mode == "head":
        moved_head = _move_head(forward.output.features, slopes, weight, bias, rate)
        meta_loss, head_pull = _meta_pull_head(model, moved_head, meta_inputs, meta_targets)
        tangents = _head_tangents(forward.output.features, head_pull)
    else:
        moved = _move_all(model, logits, slopes, rate)
        meta_loss, pull = _meta_pull(model, moved, meta_inputs, meta_targets)
        tangents = _tangents(model, forward, pull)
    along = sum((slope * tangent).sum() for slope, tangent in zip(slopes, tangents, strict=True))
    assert isinstance(along, Tensor)
    gradients = torch.autograd.grad(along, list(outer), allow_unused=True, materialize_grads=True)
    return MetaGradient(tuple(all_mean(-rate * gradient) for gradient in gradients), all_mean(meta_loss))


def _move_all(model: nn.Module, logits: Tensor, slopes: Sequence[Tensor], rate: float) -> dict[str, Tensor]:
    """theta' of every trainable parameter, from the slopes at the logits and, directly, at the head's weight."""
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    to_logits, to_weight = (slope.detach() for slope in slopes)
    gradients = torch.autograd.grad(
        logits, list(named.values()), to_logits, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    moved = {}
    weight, _ = _head_tensors(model)
    for (name, value), gradient in zip(named.items(), gradients, strict=True):
        if value is weight:
            gradient = gradient + to_weight
        moved[name] = (value.detach() - rate * all_mean(gradient)).requires_grad_()
    return moved


def _meta_pull(
    model: nn.Module, moved: dict[str, Tensor], inputs: Any, targets: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    with torch.enable_grad():
        logits = functional_call(model, (moved, _buffers(model)), (inputs,)).logits
        loss = F.cross_entropy(logits, targets) * _share(targets)
    gradients = torch.autograd.grad(loss, list(moved.values()), allow_unused=True, materialize_grads=True)
    return loss.detach(), {name: all_mean(value) for name, value in zip(moved, gradients, strict=True)}


def _tangents(model: nn.Module, forward: Forward, pull: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Derivatives of logits and head weight along `pull`, by one forward-mode pass."""
    parameters = dict(model.named_parameters())
    # Fused attention kernels have no forward-mode derivative; the plain one gives the same numbers.
    attention = sdpa_kernel(SDPBackend.MATH)
    with torch.no_grad(), forward_mode.dual_level(), _replay(forward.random_state), attention:
        duals = {name: forward_mode.make_dual(parameters[name].detach(), value) for name, value in pull.items()}
        logits = functional_call(model, (duals, _buffers(model)), (forward.inputs,)).logits
        tangent = forward_mode.unpack_dual(logits).tangent
    weight, _ = _head_tensors(model)
    head_name = next(name for name, value in parameters.items() if value is weight)
    if tangent is None:  # nothing on the way to the logits is trained
        tangent = torch.zeros_like(logits)
    return tangent.detach(), pull.get(head_name, torch.zeros_like(parameters[head_name]))


def _move_head(
    features: Tensor, slopes: Sequence[Tensor], weight: Tensor, bias: Tensor | None, rate: float
) -> tuple[Tensor, Tensor | None]:
    to_logits, to_weight = (slope.detach() for slope in slopes)
    moved = weight.detach() - rate * all_mean(to_logits.T @ features.detach() + to_weight)
    if bias is None:
        return moved.requires_grad_(), None
    return moved.requires_grad_(), (bias.detach() - rate * all_mean(to_logits.sum(0))).requires_grad_()


def _meta_pull_head(
    model: nn.Module, moved: tuple[Tensor, Tensor | None], inputs: Any, targets: Tensor
) -> tuple[Tensor, tuple[Tensor, Tensor | None]]:
    with torch.no_grad():
        parameters = {name: value.detach() for name, value in model.named_parameters()}
        features = functional_call(model, (parameters, _buffers(model)), (inputs,)).features
    weight, bias = moved
    with torch.enable_grad():
        loss = F.cross_entropy(F.linear(features.detach(), weight, bias), targets) * _share(targets)
    if bias is None:
        return loss.detach(), (all_mean(torch.autograd.grad(loss, weight)[0]), None)
    to_weight, to_bias = torch.autograd.grad(loss, (weight, bias))
    return loss.detach(), (all_mean(to_weight), all_mean(to_bias))


def _head_tangents(features: Tensor, pull: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor]:
    to_weight, to_bias = pull
    return F.linear(features.detach(), to_weight, to_bias), to_weight


def _head_tensors(model: nn.Module) -> tuple[Tensor, Tensor | None]:
    head = model.head
    assert isinstance(head, nn.Module)
    weight, bias = head.weight, getattr(head, "bias", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        raise InputError("the look-ahead needs a model with a linear head: icda.models has adapters that find it.")
    return weight, bias


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    """Copies: a functional call with the real ones would move BatchNorm's running statistics."""
    return {name: value.clone() for name, value in model.named_buffers()}


def _share(samples: Tensor) -> float:
    """This rank's samples against the mean over ranks: a rank with fewer must count for less in a mean of means."""
    count = torch.tensor(float(len(samples)), device=samples.device)
    return float(count / all_mean(count))


def _random_state() -> list[Tensor]:
    """The generators that dropout draws from: the CPU's, and those of all GPUs."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else ())]


def _set_random_state(state: list[Tensor]) -> None:
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state_all(state[1:])


@contextmanager
def _replay(state: list[Tensor]) -> Iterator[None]:
    now = _random_state()
    _set_random_state(state)
    try:
        yield
    finally:
        _set_random_state(now)
