"""The augmentation term (lambda/2) P + lambda M with its gradient in closed form (mathematics 0 and mathematics 7).

The value is that of `quadratic.py`; only the derivative with respect to the head's weight is written out by hand, because
autograd on the plain formula takes twice as many matrix products. Statistics and strengths are constants here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from icda.statistics import Moments
from icda.statistics.grouping import LabelGroups

CHUNK_ELEMENTS = 1 << 20  # largest temporary, in numbers
CACHE_ELEMENTS = 1 << 17  # of the table form
TABLE_ELEMENTS = 1 << 26  # largest table of the table form


def augmentation_term(
    weight: Tensor,
    targets: Tensor,
    coefficients: Tensor,
    towards: Tensor | None,
    moments: Moments,
    lam: float | Tensor,
    bound: float = math.inf,
) -> Tensor:
    """(lambda/2) P + lambda M, shape (N, C), zero at the target; `towards` is alpha-hat (N, C), or None to leave M out.

    Where (lambda/2) P is above `bound`, lambda is taken smaller for that sample and class, so that it equals the bound.
    """
    return _AugmentationTerm.apply(weight, targets, coefficients, towards, moments, lam, bound)


def adjusted_logits(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    plain: Tensor,
    targets: Tensor,
    coefficients: Tensor,
    towards: Tensor | None,
    moments: Moments,
    lam: float,
    bound: float = math.inf,
) -> Tensor:
    """W h + b + (lambda/2) P + lambda M for diagonal covariances; `plain` is W h, computed already for the strengths.

    With the logits in the same step their gradient shares two products with that of the term: nine in all, against three
    of a plain head.
    """
    assert moments.kind == "diagonal"
    return _AdjustedLogits.apply(features, weight, bias, plain, targets, coefficients, towards, moments, lam, bound)


class _AugmentationTerm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        targets: Tensor,
        coefficients: Tensor,
        towards: Tensor | None,
        moments: Moments,
        lam: float,
        bound: float,
    ) -> Tensor:
        value, keep, form = term_and_form(weight, targets, coefficients, towards, moments, lam, bound)
        ctx.kind, ctx.lam = type(form), lam
        # Saved, not kept as attributes: so they go when the graph goes, even if the loss value is held on to.
        ctx.save_for_backward(targets, keep, towards, moments.mean, *form)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        targets, keep, towards, mean, *parts = ctx.saved_tensors
        to_weight = weight_gradient(grad, ctx.kind(*parts), targets, keep, towards, mean, ctx.lam)
        return to_weight, None, None, None, None, None, None


def term_and_form(
    weight: Tensor,
    targets: Tensor,
    coefficients: Tensor,
    towards: Tensor | None,
    moments: Moments,
    lam: float,
    bound: float,
) -> tuple[Tensor, Tensor, Form]:
    """The term, how much P counts, and what the gradient needs."""
    form = _make_form(weight, targets, coefficients * moments.scale, moments)
    value, keep = _value(form, weight, targets, towards, moments, lam, bound)
    return value, keep, form


def weight_gradient(
    grad: Tensor, form: Form, targets: Tensor, keep: Tensor, towards: Tensor | None, mean: Tensor, lam: float
) -> Tensor:
    grad = grad * lam
    to_weight, to_own = form.pull_back(grad * keep)
    _pull_mean(to_weight, to_own, grad, targets, towards, mean)
    return to_weight


class _AdjustedLogits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        plain: Tensor,
        targets: Tensor,
        coefficients: Tensor,
        towards: Tensor | None,
        moments: Moments,
        lam: float,
        bound: float,
    ) -> Tensor:
        form = DiagonalForm.make(weight, targets, coefficients * moments.scale, moments.scatter)
        value, keep = _value(form, weight, targets, towards, moments, lam, bound)
        value += plain
        ctx.lam, ctx.has_bias = lam, bias is not None
        ctx.save_for_backward(features, targets, keep, towards, moments.mean, *form)
        return value if bias is None else value.add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        features, targets, keep, towards, mean, *parts = ctx.saved_tensors
        form = DiagonalForm(*parts)
        scaled = (grad * ctx.lam).scatter_(1, targets[:, None], 0)
        to_features = grad @ form.weight
        if _counts_everywhere(keep):  # nothing was clamped: the shared products are right as they are
            at_target = grad.gather(1, targets[:, None])
            to_weight = torch.empty_like(form.weight)
            shared = torch.add(features, form.cross, alpha=-ctx.lam)
            for rows in _parts(*form.weight.shape):
                part = torch.mm(grad.T[rows], shared, out=to_weight[rows])
                part.addcmul_(scaled.T[rows] @ form.mixed, form.weight[rows])
            through = (to_features - at_target * form.own).mul_(ctx.lam)  # scaled @ weight, without another product
            to_own = form.cross * (scaled.sum(1, keepdim=True) + ctx.lam * at_target)
            to_own.addcmul_(form.mixed, through, value=-1)
        else:
            to_weight, to_own = form.pull_back(scaled * keep)
            to_weight.addmm_(grad.T, features)
        _pull_mean(to_weight, to_own, scaled, targets, towards, mean)
        to_bias = grad.sum(0) if ctx.has_bias else None
        return to_features, to_weight, to_bias, None, None, None, None, None, None, None


def _value(
    form: Form,
    weight: Tensor,
    targets: Tensor,
    towards: Tensor | None,
    moments: Moments,
    lam: float,
    bound: float,
) -> tuple[Tensor, Tensor]:
    """The term, and how much P counts: not where rounding, or a meta step that left Sigma indefinite, made it negative."""
    quadratic = form.value()
    keep = (quadratic >= 0).scatter_(1, targets[:, None], False)
    value = quadratic.mul_(keep).mul_(0.5 * lam)
    if bound < math.inf:
        keep = keep * share_within(value, bound)
        value.clamp_(max=bound)
    if towards is not None:
        own = torch.cat([torch.linalg.vecdot(weight[rows], moments.mean[rows]) for rows in _parts(*weight.shape)])
        distance = own - weight[targets] @ moments.mean.T
        value.addcmul_(towards, distance, value=lam)
    return value.scatter_(1, targets[:, None], 0), keep


def share_within(value: Tensor, bound: float) -> Tensor:
    """What each value is to be multiplied by to stay within `bound`: exactly 1 for those that do.

    >>> share_within(torch.tensor([0.0, 3.0, 40.0]), bound=10.0)
    tensor([1.0000, 1.0000, 0.2500])
    """
    return bound / value.detach().clamp(min=bound)


def _counts_everywhere(keep: Tensor) -> bool:
    """Whether P counts in full on every logit but the target's."""
    return int((keep == 1).sum()) == keep.numel() - len(keep)


def _pull_mean(
    to_weight: Tensor, to_own: Tensor | None, grad: Tensor, targets: Tensor, towards: Tensor | None, mean: Tensor
) -> None:
    """Add to `to_weight` the gradient of the mean term, and what `to_own` holds for each sample's own class."""
    if towards is not None:
        pull = (grad * towards).scatter_(1, targets[:, None], 0)
        to_weight.addcmul_(pull.sum(0)[:, None], mean)
        away = (pull @ mean).neg_()
        to_own = away if to_own is None else to_own.add_(away)
    if to_own is not None:
        to_weight.index_add_(0, targets, to_own)


def _parts(rows: int, width: int, limit: int = CHUNK_ELEMENTS) -> Iterator[slice]:
    """Rows of a (rows, width) table, a few at a time: one part where the table is small."""
    size = max(1, limit // width)
    return (slice(start, start + size) for start in range(0, rows, size))


def _make_form(weight: Tensor, targets: Tensor, coef: Tensor, moments: Moments) -> Form:
    """A form has `value`, P up to the clamp, and `pull_back`, the gradient of <grad, P/2> at all w_c and, apart, at w_y."""
    if moments.kind == "diagonal":
        return DiagonalForm.make(weight, targets, coef, moments.scatter)
    form = TableForm if takes_table(weight, len(targets)) else SampleForm
    return form.make(weight, targets, coef, moments.scatter)


def takes_table(weight: Tensor, num_samples: int) -> bool:
    """Whether full covariances are mapped for all pairs of classes at once, or for each sample.

    A table over class pairs costs C^2 A^2 and holds C^2 A or C^3 numbers, one matrix per sample N C A^2 and N A^2.
    """
    num_classes, feature_dim = weight.shape
    return num_classes <= 2 * num_samples and num_classes**2 * max(num_classes, feature_dim) <= TABLE_ELEMENTS


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
        own_square = (self.cross * self.own).sum(1, keepdim=True)
        squares = [
            torch.addmm(own_square, self.mixed, self.weight[rows].square().T) for rows in _parts(*self.weight.shape)
        ]
        return torch.cat(squares, 1).addmm_(self.cross, self.weight.T, alpha=-2)

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
        groups = LabelGroups.of_all(targets, len(weight))
        images = torch.bmm(weight.expand(len(weight), -1, -1), scatter)
        own_image = groups.apply(coef, images.transpose(0, 1))
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
        groups = LabelGroups.of(self.targets)
        pairs = groups.products(self.coef, grad)  # (labels of the batch, C, C)
        by_label = pairs.view(-1, num_classes**2) @ self.images.view(-1, feature_dim)
        return to_weight.index_add_(0, groups.labels, by_label, alpha=-1), None

    def _parts(self) -> Iterator[slice]:
        """Of the table, as much as stays in a core's cache and on the heap: fresh memory costs as much as the product."""
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
        squares = torch.cat([torch.linalg.vecdot(image, self.weight) for image in self._images()])
        return (squares + squares.gather(1, self.targets[:, None])).addmm_(self.own_image, self.weight.T, alpha=-2)

    def pull_back(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        to_weight = -(grad.T @ self.own_image)
        start = 0
        for image in self._images():
            part = grad[start : start + len(image)]
            to_weight += (part[:, :, None] * image).sum(0)
            start += len(image)
        pulled = torch.bmm(self.mixed, (grad @ self.weight)[:, :, None])[:, :, 0]
        return to_weight, grad.sum(1, keepdim=True) * self.own_image - pulled

    def _images(self) -> Iterator[Tensor]:
        """V_i w_c in chunks of samples, so that N x C x A never stands in memory."""
        for rows in _parts(len(self.mixed), self.weight.numel()):
            yield torch.matmul(self.weight, self.mixed[rows])


Form = DiagonalForm | TableForm | SampleForm
