"""The augmentation term with its gradient in closed form (mathematics 0 and 7): the values of `quadratic.py`, faster.

Autograd on the plain formula takes twice as many matrix products. Statistics and strengths are constants here. Whoever
differentiates the gradient once more gets the plain formula's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import OperationError
from icda.functional.augmentation import Term
from icda.functional.grouping import LabelGroups, on_host
from icda.functional.quadratic import reference_term, share_within

CHUNK_ELEMENTS = 1 << 20  # largest temporary, in numbers
CACHE_ELEMENTS = 1 << 17  # as much as stays in a core's cache
TABLE_ELEMENTS = 1 << 26  # largest table of the table form


def augmentation_term(weight: Tensor, *term: Any) -> Tensor:
    """(lambda/2) P + lambda M (N, C) of what a `Term` holds."""
    return _AugmentationTerm.apply(weight, Term(*term))


def adjusted_logits(features: Tensor, weight: Tensor, bias: Tensor | None, plain: Tensor, *term: Any) -> Tensor:
    """W h + b + (lambda/2) P + lambda M for diagonal covariances; `plain` is W h, computed already for the strengths.

    With the logits in the same step their gradient shares two products with that of the term: nine in all, against three
    of a plain head.
    """
    return _AdjustedLogits.apply(features, weight, bias, plain, Term(*term))


def _without_autocast(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Some call backward() inside of autocast, which would narrow some of its products and not others."""

    @functools.wraps(backward)
    def run(ctx: Any, grad: Tensor) -> Any:
        with torch.autocast(grad.device.type, enabled=False):
            return backward(ctx, grad)

    return run


class _AugmentationTerm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, term: Term) -> Tensor:
        form = make_form(weight, term)
        value, keep = term_value(form, weight, term)
        _remember(ctx, term, form, keep, weight)
        return value

    @staticmethod
    @_without_autocast
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (weight,), term, keep, form = _recall(ctx, 1)
        if torch.is_grad_enabled():
            return (*_again(ctx, lambda: reference_term(weight, *term), (weight,), grad), None)
        return weight_gradient(grad, form, keep, term), None


class _AdjustedLogits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, plain: Tensor, term: Term) -> Tensor:
        form = make_form(weight, term)
        value, keep = term_value(form, weight, term)
        value += plain
        _remember(ctx, term, form, keep, features, weight, bias)
        return value if bias is None else value.add_(bias)

    @staticmethod
    @_without_autocast
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (features, weight, bias), term, keep, form = _recall(ctx, 3)
        if torch.is_grad_enabled():
            given = features, weight, bias
            return (*_again(ctx, lambda: F.linear(*given) + reference_term(weight, *term), given, grad), None, None)
        scaled = (grad * term.lam).scatter_(1, term.targets[:, None], 0)
        to_features = grad @ weight
        if counts_everywhere(keep):  # nothing was clamped: the shared products are right as they are
            to_weight, to_own = _shared_products(form, features, term, grad, scaled, to_features)
        else:
            to_weight, to_own = form.pull_back(scaled * keep)
            to_weight.addmm_(grad.T, features)
        _pull_mean(to_weight, to_own, scaled, term)
        return to_features, to_weight, None if bias is None else grad.sum(0), None, None


def _remember(ctx: Any, term: Term, form: Form, keep: Tensor, *given: Tensor | None) -> None:
    """Saved, not kept as attributes: tensors then go when the graph goes, even if the loss value is held on to.

    The running covariances are the exception: they change in place with the next batch, and only a second derivative
    reads them.
    """
    ctx.save_for_backward(*given, term.targets, term.coefficients, term.towards, keep, *form)
    ctx.kind, ctx.moments, ctx.lam, ctx.bound = type(form), term.moments, term.lam, term.bound
    ctx.version = term.moments.scatter._version


def _recall(ctx: Any, number: int) -> tuple[Any, Term, Tensor, Any]:
    saved = ctx.saved_tensors  # once: checkpointing unpacks them
    given, (targets, coefficients, towards, keep, *form) = saved[:number], saved[number:]
    term = Term(targets, coefficients, towards, ctx.moments, ctx.lam, ctx.bound)
    return given, term, keep, ctx.kind(*form)


def _again(
    ctx: Any, formula: Callable[[], Tensor], given: tuple[Tensor | None, ...], grad: Tensor
) -> Iterator[Tensor | None]:
    """The gradient by the plain formula, for those who want to differentiate it."""
    if ctx.moments.scatter._version != ctx.version:
        raise OperationError(
            "a second derivative needs the statistics of its own batch, and another was folded in since."
        )
    wanted = [part for part in given if part is not None and part.requires_grad]
    found = iter(torch.autograd.grad(formula(), wanted, grad, create_graph=True))
    return (next(found) if part is not None and part.requires_grad else None for part in given)


def _shared_products(
    form: DiagonalForm, features: Tensor, term: Term, grad: Tensor, scaled: Tensor, to_features: Tensor
) -> tuple[Tensor, Tensor]:
    at_target, lam = grad.gather(1, term.targets[:, None]), term.lam
    to_weight = torch.empty_like(form.weight)
    shared = torch.mul(form.cross, -lam).add_(features)
    for rows in _parts(*form.weight.shape):
        part = torch.mm(grad.T[rows], shared, out=to_weight[rows])
        part.addcmul_(scaled.T[rows] @ form.mixed, form.weight[rows])
    # In the memory of what is not needed any more, because fresh memory costs as much as the arithmetic.
    through = torch.addcmul(
        to_features, at_target, form.own, value=-1, out=shared
    )  # lambda times it is scaled @ weight
    to_own = through.mul_(form.mixed).mul_(-lam).addcmul_(form.cross, scaled.sum(1, keepdim=True) + lam * at_target)
    return to_weight, to_own


def term_value(form: Form, weight: Tensor, term: Term) -> tuple[Tensor, Tensor]:
    """The term, and how much P counts: not where rounding, or a meta step that left Sigma indefinite, made it negative."""
    targets, mean, lam = term.targets, term.moments.mean, term.lam
    quadratic = form.value()
    keep = (quadratic >= 0).scatter_(1, targets[:, None], False)
    value = quadratic.mul_(keep).mul_(0.5 * lam)
    if term.bound < math.inf:
        keep = keep * share_within(value, term.bound)
        value.clamp_(max=term.bound)
    if term.towards is not None:
        value += _mean_distances(weight, targets, mean).mul_(term.towards).mul_(lam)
    return value.scatter_(1, targets[:, None], 0), keep


def _mean_distances(weight: Tensor, targets: Tensor, mean: Tensor) -> Tensor:
    """(w_c - w_y) . mu_c (N, C): once for each label where those are fewer than samples."""
    if len(weight) <= len(targets):
        table = weight @ mean.T
        return (table.diagonal() - table)[targets]
    parts = _parts(len(weight), weight.shape[1], CACHE_ELEMENTS)
    return torch.cat([torch.linalg.vecdot(weight[rows], mean[rows]) for rows in parts]) - weight[targets] @ mean.T


def weight_gradient(grad: Tensor, form: Form, keep: Tensor, term: Term) -> Tensor:
    grad = grad * term.lam
    to_weight, to_own = form.pull_back(grad * keep)
    _pull_mean(to_weight, to_own, grad, term)
    return to_weight


def counts_everywhere(keep: Tensor) -> bool:
    """Whether P counts in full on every logit but the target's, where that can be known without stopping a device."""
    known = on_host(keep)
    return known is not None and int((known == 1).sum()) == known.size - len(known)


def _pull_mean(to_weight: Tensor, to_own: Tensor | None, grad: Tensor, term: Term) -> None:
    """Add to `to_weight` the gradient of the mean term, and what `to_own` holds for each sample's own class."""
    if term.towards is not None:
        mean, pull = term.moments.mean, (grad * term.towards).scatter_(1, term.targets[:, None], 0)
        to_weight.addcmul_(pull.sum(0)[:, None], mean)
        if len(to_weight) <= len(grad):
            to_weight.addmm_(
                grad.new_zeros(mean.shape[0], mean.shape[0]).index_add_(0, term.targets, pull), mean, alpha=-1
            )
        else:
            to_own = torch.mm(pull, mean).neg_() if to_own is None else to_own.addmm_(pull, mean, alpha=-1)
    if to_own is not None:
        to_weight.index_add_(0, term.targets, to_own)


def _parts(rows: int, width: int, limit: int = CHUNK_ELEMENTS) -> Iterator[slice]:
    """Rows of a (rows, width) table, a few at a time: one part where the table is small."""
    size = max(1, limit // width)
    return (slice(start, start + size) for start in range(0, rows, size))


def make_form(weight: Tensor, term: Term) -> Form:
    """A form has `value`, P up to the clamp, and `pull_back`, the gradient of <grad, P/2> at all w_c and, apart, at w_y."""
    moments = term.moments
    kind = DiagonalForm if moments.kind == "diagonal" else full_form(weight, len(term.targets))
    return kind.make(weight, term.targets, term.coefficients * moments.scale, moments.scatter)


def full_form(weight: Tensor, num_samples: int) -> type[TableForm | SampleForm]:
    """Whether full covariances are mapped for all pairs of classes at once, or for each sample.

    A table over class pairs costs C^2 A^2 and holds C^2 A or C^3 numbers, one matrix per sample N C A^2 and N A^2.
    """
    num_classes, feature_dim = weight.shape
    fits = num_classes <= 2 * num_samples and num_classes**2 * max(num_classes, feature_dim) <= TABLE_ELEMENTS
    return TableForm if fits else SampleForm


class DiagonalForm(NamedTuple):
    weight: Tensor
    own: Tensor  # w_y (N, A)
    mixed: Tensor  # sum_j coef_{i,j} sigma_j (N, A)
    cross: Tensor  # their product

    @classmethod
    def make(cls, weight: Tensor, targets: Tensor, coef: Tensor, variances: Tensor) -> DiagonalForm:
        own, mixed = weight[targets], coef @ variances
        return cls(weight, own, mixed, mixed * own)

    def value(self) -> Tensor:
        own_square = torch.linalg.vecdot(self.cross, self.own)[:, None]
        value = self.own.new_empty(len(self.own), len(self.weight))
        for rows in _parts(*self.weight.shape):
            torch.addmm(own_square, self.mixed, self.weight[rows].square().T, out=value[:, rows])
        return value.addmm_(self.cross, self.weight.T, alpha=-2)

    def pull_back(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        to_weight = torch.empty_like(self.weight)
        for rows in _parts(*self.weight.shape):
            part = torch.mm(grad.T[rows], self.mixed, out=to_weight[rows])
            part.mul_(self.weight[rows]).addmm_(grad.T[rows], self.cross, alpha=-1)
        to_own = (self.cross * grad.sum(1, keepdim=True)).addcmul_(self.mixed, grad @ self.weight, value=-1)
        return to_weight, to_own


class TableForm(NamedTuple):
    """Sigma_j w_c for all pairs: independent of N, right for small C."""

    weight: Tensor
    targets: Tensor
    coef: Tensor
    images: Tensor  # Sigma_j w_c (C, C, A)
    own_image: Tensor  # V_i w_y (N, A)

    @classmethod
    def make(cls, weight: Tensor, targets: Tensor, coef: Tensor, scatter: Tensor) -> TableForm:
        images = torch.bmm(weight.expand(len(weight), -1, -1), scatter)
        own_image = LabelGroups.of(targets, len(weight)).apply(coef, images.transpose(0, 1))
        return cls(weight, targets, coef, images, own_image)

    def value(self) -> Tensor:
        parts = [torch.linalg.vecdot(self.images[rows], self.weight) for rows in self._parts()]
        squares = self.coef @ torch.cat(parts)
        own_square = squares.gather(1, self.targets[:, None])
        return (squares + own_square).addmm_(self.own_image, self.weight.T, alpha=-2)

    def pull_back(self, grad: Tensor) -> tuple[Tensor, None]:
        num_classes, feature_dim = self.weight.shape
        to_squares = grad.scatter(1, self.targets[:, None], grad.sum(1, keepdim=True))  # grad is zero at the target
        counts = (self.coef.T @ to_squares)[:, :, None]
        to_weight = torch.cat([(self.images[:, rows] * counts[:, rows]).sum(0) for rows in self._parts()])
        to_weight.addmm_(grad.T, self.own_image, alpha=-1)
        # sum_c grad_{i,c} V_i w_c over the samples of one label: the gradient of the cross term at w_y.
        pairs = LabelGroups.of(self.targets, num_classes).products(self.coef, grad)  # (C, C, C)
        return to_weight.sub_(pairs.view(-1, num_classes**2) @ self.images.view(-1, feature_dim)), None

    def _parts(self) -> Iterator[slice]:
        return _parts(len(self.weight), self.weight.numel(), CACHE_ELEMENTS)


class SampleForm(NamedTuple):
    """V_i = sum_j coef_{i,j} Sigma_j for every sample: right when classes outnumber samples."""

    weight: Tensor
    targets: Tensor
    mixed: Tensor  # V_i (N, A, A)
    own_image: Tensor  # V_i w_y (N, A)

    @classmethod
    def make(cls, weight: Tensor, targets: Tensor, coef: Tensor, scatter: Tensor) -> SampleForm:
        mixed = (coef @ scatter.flatten(1)).view(-1, *scatter.shape[1:])
        return cls(weight, targets, mixed, torch.bmm(mixed, weight[targets][:, :, None])[:, :, 0])

    def value(self) -> Tensor:
        squares = torch.cat([torch.linalg.vecdot(image, self.weight) for _, image in self._images()])
        return (squares + squares.gather(1, self.targets[:, None])).addmm_(self.own_image, self.weight.T, alpha=-2)

    def pull_back(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        to_weight = -(grad.T @ self.own_image)
        for rows, image in self._images():
            to_weight += (grad[rows][:, :, None] * image).sum(0)
        pulled = torch.bmm(self.mixed, (grad @ self.weight)[:, :, None])[:, :, 0]
        return to_weight, grad.sum(1, keepdim=True) * self.own_image - pulled

    def _images(self) -> Iterator[tuple[slice, Tensor]]:
        """V_i w_c in chunks of samples, so that N x C x A never stands in memory."""
        return (
            (rows, torch.matmul(self.weight, self.mixed[rows])) for rows in _parts(len(self.mixed), self.weight.numel())
        )


Form = DiagonalForm | TableForm | SampleForm
