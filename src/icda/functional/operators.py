"""The augmentation term as one step of a compiled graph, with its gradient.

`torch.compile` follows tensors without their values. The fast forms look at values (how many samples a label has), which
would break the graph; as an operator they stand in it unopened and run as in eager mode. Imported while a graph is traced.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from icda.functional.augmentation import Term
from icda.functional.fused import DiagonalForm, TableForm, full_form, make_form, term_value, weight_gradient
from icda.functional.moments import Moments

Parts = tuple[Tensor, ...]


def compiled_term(weight: Tensor, term: Term) -> Tensor:
    """`augmentation_term` in a graph. Lambda is a tensor there: a new value is no new graph."""
    moments, lam = term.moments, term.lam
    factor = lam if isinstance(lam, Tensor) else torch.tensor(lam, dtype=torch.float64)
    given = weight, term.targets, term.coefficients, term.towards, moments.mean, moments.scatter, moments.scale
    return augmentation(*given, moments.kind, factor, None if term.bound == math.inf else float(term.bound))[0]


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
    kind: Any,
    lam: Tensor,
    bound: float | None,
) -> Parts:
    """The value, how much P counts, and what the form keeps besides weight and targets, filled up with nothing."""
    moments = Moments(kind, mean, scatter, scale)
    term = Term(targets, coefficients, towards, moments, lam.item(), math.inf if bound is None else bound)
    form = make_form(weight, term)
    value, keep = term_value(form, weight, term)
    own = [part.clone() for part in form if part is not weight and part is not term.targets]
    return value, keep, *own, *[weight.new_empty(0)] * (3 - len(own))


@augmentation.register_fake
def _(weight: Tensor, targets: Tensor, *rest: Any) -> Parts:
    kind, bound = rest[-3], rest[-1]
    size, (num_classes, feature_dim) = len(targets), weight.shape
    value = weight.new_empty(size, num_classes)
    keep = torch.empty_like(value, dtype=torch.bool if bound is None else None)
    row = weight.new_empty(size, feature_dim)
    if kind == "diagonal":
        parts = [row, torch.empty_like(row), torch.empty_like(row)]
    elif full_form(weight, size) is TableForm:
        parts = [torch.empty_like(value), weight.new_empty(num_classes, num_classes, feature_dim), row]
    else:
        parts = [weight.new_empty(size, feature_dim, feature_dim), row, weight.new_empty(0)]
    return value, keep, *parts


@torch.library.custom_op(
    "icda::augmentation_gradient",
    mutates_args=(),
    schema="(Tensor grad, Tensor weight, Tensor targets, Tensor? towards, Tensor mean, str kind, Tensor lam, Tensor keep, "
    "Tensor a, Tensor b, Tensor c) -> Tensor",
)
def augmentation_gradient(
    grad: Tensor,
    weight: Tensor,
    targets: Tensor,
    towards: Tensor | None,
    mean: Tensor,
    kind: Any,
    lam: Tensor,
    keep: Tensor,
    *parts: Tensor,
) -> Tensor:
    # Covariances and coefficients have done their part: the form holds what came of them.
    term = Term(targets, keep, towards, Moments(kind, mean, mean, mean), lam.item())
    form = DiagonalForm if kind == "diagonal" else full_form(weight, len(targets))
    held: Parts = (weight,) if kind == "diagonal" else (weight, targets)
    return weight_gradient(grad, form(*(*held, *parts)[: len(form._fields)]), keep, term)


@augmentation_gradient.register_fake
def _(grad: Tensor, weight: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(weight)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Parts) -> None:
    weight, targets, _, towards, mean, _, _, ctx.kind, lam, _ = inputs
    ctx.save_for_backward(weight, targets, towards, mean, lam, *output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, *_: object) -> tuple[Tensor | None, ...]:
    weight, targets, towards, mean, lam, *parts = ctx.saved_tensors
    to_weight = None
    if grad is not None:
        to_weight = augmentation_gradient(grad, weight, targets, towards, mean, ctx.kind, lam, *parts)
    return (to_weight, *[None] * 9)


augmentation.register_autograd(_backward, setup_context=_setup)
