"""Checks of values, and the augmentation term with its gradient, as steps of a compiled graph.

`icda.statistics.operators` says why.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from icda.errors import InputError
from icda.losses.terms.fused import (
    DiagonalForm,
    Form,
    SampleForm,
    TableForm,
    takes_table,
    term_and_form,
    weight_gradient,
)
from icda.losses.terms.prior import check_counted
from icda.losses.terms.progress import check_progress
from icda.statistics import Moments
from icda.statistics.checks import check_targets

Parts = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@torch.library.custom_op(
    "icda::augmentation",
    mutates_args=(),
    schema="(Tensor weight, Tensor targets, Tensor coefficients, Tensor? towards, Tensor mean, Tensor scatter, "
    "Tensor scale, str kind, Tensor lam, float? bound) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def augmentation(
    weight: Tensor,
    targets: Tensor,
    coefficients: Tensor,
    towards: Tensor | None,
    mean: Tensor,
    scatter: Tensor,
    scale: Tensor,
    kind: str,
    lam: Tensor,
    bound: float | None,
) -> Parts:
    """The value of `augmentation_term`, then what its gradient needs. `lam` is a tensor: a new lambda is no new graph."""
    moments = Moments(kind, mean, scatter, scale)  # type: ignore[arg-type]
    limit = math.inf if bound is None else bound
    value, keep, form = term_and_form(weight, targets, coefficients, towards, moments, lam.item(), limit)
    if isinstance(form, DiagonalForm):
        return value, keep, form.own, form.mixed, form.cross
    if isinstance(form, TableForm):
        return value, keep, form.coef, form.images, form.own_image
    return value, keep, form.mixed, form.own_image, weight.new_empty(0)


@augmentation.register_fake
def _(
    weight: Tensor,
    targets: Tensor,
    coefficients: Tensor,
    towards: Tensor | None,
    mean: Tensor,
    scatter: Tensor,
    scale: Tensor,
    kind: str,
    lam: Tensor,
    bound: float | None,
) -> Parts:
    size, (num_classes, feature_dim) = len(targets), weight.shape
    value = weight.new_empty(size, num_classes)
    keep = torch.empty_like(value, dtype=torch.bool if bound is None else None)
    rows = [weight.new_empty(size, feature_dim) for _ in range(3)]
    if kind == "diagonal":
        return value, keep, rows[0], rows[1], rows[2]
    if takes_table(weight, size):
        images = weight.new_empty(num_classes, num_classes, feature_dim)
        return value, keep, torch.empty_like(value), images, rows[0]
    return value, keep, weight.new_empty(size, feature_dim, feature_dim), rows[0], weight.new_empty(0)


@torch.library.custom_op(
    "icda::augmentation_gradient",
    mutates_args=(),
    schema="(Tensor grad, Tensor weight, Tensor targets, Tensor? towards, Tensor mean, Tensor lam, str kind, Tensor keep, "
    "Tensor first, Tensor second, Tensor third) -> Tensor",
)
def augmentation_gradient(
    grad: Tensor,
    weight: Tensor,
    targets: Tensor,
    towards: Tensor | None,
    mean: Tensor,
    lam: Tensor,
    kind: str,
    keep: Tensor,
    first: Tensor,
    second: Tensor,
    third: Tensor,
) -> Tensor:
    form: Form
    if kind == "diagonal":
        form = DiagonalForm(weight, first, second, third)
    elif takes_table(weight, len(targets)):
        form = TableForm(weight, targets, first, second, third)
    else:
        form = SampleForm(weight, targets, first, second)
    return weight_gradient(grad, form, targets, keep, towards, mean, lam.item())


@augmentation_gradient.register_fake
def _(grad: Tensor, weight: Tensor, *_: object) -> Tensor:
    return torch.empty_like(weight)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Parts) -> None:
    weight, targets, _, towards, mean, _, _, kind, lam, _ = inputs
    ctx.kind = kind
    ctx.save_for_backward(weight, targets, towards, mean, lam, *output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, *_: object) -> tuple[Tensor | None, ...]:
    weight, targets, towards, mean, lam, *parts = ctx.saved_tensors
    to_weight = None
    if grad is not None:
        to_weight = augmentation_gradient(grad, weight, targets, towards, mean, lam, ctx.kind, *parts)
    return (to_weight, *[None] * 9)


augmentation.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op(
    "icda::counted_labels", mutates_args=(), schema="(Tensor targets, Tensor class_counts) -> Tensor"
)
def counted_labels(targets: Tensor, class_counts: Tensor) -> Tensor:
    """The labels, refused where one is of a class without training samples."""
    check_counted(class_counts, targets)
    return targets.clone()


@counted_labels.register_fake
def _(targets: Tensor, _: Tensor) -> Tensor:
    return torch.empty_like(targets)


@torch.library.custom_op(
    "icda::labels",
    mutates_args=(),
    schema="(Tensor targets, Tensor progress, int num_classes, int ignore_index, str owner) -> Tensor",
)
def labels(targets: Tensor, progress: Tensor, num_classes: int, ignore_index: int, owner: str) -> Tensor:
    """The labels as int64, refused where one is out of range; so is a progress.

    A graph has one shape for each batch size, so that rows cannot be left out: a target that is to be ignored is refused.
    That progress is read here keeps it a tensor for losses that do not need it: a number that nothing reads is taken for a
    constant, and each new one for a new graph.
    """
    check_progress(progress)
    targets = check_targets(targets, len(targets), num_classes, owner, ignore_index)
    if bool((targets == ignore_index).any()):
        raise InputError(
            f"{owner} is compiled and got targets of ignore_index, {ignore_index}: leave these rows out before the call, "
            "or do not compile the loss."
        )
    return targets.clone()


@labels.register_fake
def _(targets: Tensor, *_: object) -> Tensor:
    return torch.empty_like(targets, dtype=torch.int64)
