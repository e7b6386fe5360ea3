"""The look-ahead step and its exact gradient, without double backward through the network (mathematics 3.4).

An inner loss L(theta; psi) depends on outer variables psi only through the logits' adjustment, that is through numbers of
size N x C. One virtual SGD step theta' = theta - eta grad L(theta; psi) is tried on metadata; with g = dL_meta/dtheta' the
gradient of the metadata loss is

    dL_meta/dpsi = -eta d/dpsi < g, grad_theta L(theta; psi) > = -eta d/dpsi [ derivative of L at theta along g ]

and the derivative along g needs the logits' tangent alone: one forward-mode pass, no graph of a graph, or a difference of
two forward passes. The engine knows no method: it is given the inner loss as a function of (logits, head weight), and the
tensors psi it was built from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.errors import InputError
from icda.meta.forward import Forward
from icda.meta.tangents import difference_tangent, exact_tangent
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
        meta_loss, head_pull = _meta_pull_head(model, forward, moved_head, meta_inputs, meta_targets)
        tangents = _head_tangents(forward.output.features, head_pull)
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


def _share(samples: Tensor) -> float:
    """This rank's samples against the mean over ranks: a rank with fewer must count for less in a mean of means."""
    count = torch.tensor(float(len(samples)), device=samples.device)
    return float(count / all_mean(count))
