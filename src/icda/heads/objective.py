"""Value and gradient of the losses at a head, in closed form: what L-BFGS calls again and again.

`icda.functional.tables` says what the losses are. Three things make this form fast. A softmax does not see what is added to
all of a row, so the prior is one constant per class. The augmentation terms see the samples only through a table, so that
the samples of a label take one product with its slice. And whatever has the size N x C is worked through in blocks that
stay in cache.

Two classes have opposite rows at the optimum: one row does, their difference. So a head has `head_rows(C)` rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.functional.tables import LogitMoments, icda_table, label_table
from icda.heads.problem import LossSettings, Problem
from icda.heads.rows import row_chunks, times, transposed_times

if TYPE_CHECKING:
    from icda.heads.solver import LinearHead

BLOCK_ELEMENTS = 2**18
SORTED_BYTES = 2**31  # features up to this size are copied once in the order of the labels


@dataclass(frozen=True)
class Slope:
    """A loss, weight decay not included, and its gradient in weight (R, A), bias (R,) and, if it has one, table."""

    value: float
    to_weight: Tensor
    to_bias: Tensor
    to_table: Tensor | None = None

    def __add__(self, other: Slope) -> Slope:
        table = None if self.to_table is None or other.to_table is None else self.to_table + other.to_table
        both = self.value + other.value, self.to_weight + other.to_weight, self.to_bias + other.to_bias
        return Slope(*both, table)

    def in_rows(self) -> Slope:
        """The gradient in the rows that a head has (`to_rows`), from that in all classes."""
        if len(self.to_bias) != 2:
            return self
        to_weight, to_bias = (0.5 * (part[1:] - part[:1]) for part in (self.to_weight, self.to_bias))
        return Slope(self.value, to_weight, to_bias)


Objective = Callable[[Tensor, Tensor], Slope]


def head_rows(num_classes: int) -> int:
    """Rows of parameters that a head has."""
    return 1 if num_classes == 2 else num_classes


def to_rows(whole: Tensor) -> Tensor:
    """Parameters of K heads (K, C, A + 1) as rows (K R, A + 1)."""
    return (whole[:, 1:] - whole[:, :1] if whole.shape[1] == 2 else whole).flatten(0, 1)


def from_rows(rows: Tensor, num_classes: int) -> Tensor:
    """`to_rows` undone: (K, C, A + 1), with opposite rows for two classes."""
    parts = rows.view(-1, head_rows(num_classes), rows.shape[1])
    return torch.cat([-0.5 * parts, 0.5 * parts], 1) if num_classes == 2 else parts


class FoldObjective:
    """Cross entropy and logit adjustment of the heads of several folds, side by side, in one pass over the features.

    Each of K heads is fitted to the samples `inside` (K, N) its part; one head and all samples are the plain fit.
    """

    def __init__(self, problem: Problem, settings: LossSettings, inside: Tensor) -> None:
        self.features, self.targets, self.added = problem.features, problem.targets, problem.added
        weights = problem.weights * inside
        self.mass = weights / weights.sum(1, keepdim=True)
        bare = replace(problem, features=self.mass.new_empty(len(self.targets), 0))  # constants need none
        self.constant = torch.stack([bare.rows(mask).constants(settings.name) for mask in inside])

    def __call__(self, weight: Tensor, bias: Tensor) -> Slope:
        shift, total = shifted(bias, self.constant), Slope(0.0, torch.zeros_like(weight), torch.zeros_like(bias))
        for span, block in row_chunks(self.features):
            added = None if self.added is None else self.added[span]
            total += fold_slope(block, self.targets[span], self.mass[:, span], weight, shift, added)
        return total


def shifted(bias: Tensor, constant: Tensor) -> Tensor:
    """Biases (K R,) with the constants (K, C) of each head added."""
    if constant.shape[1] == 2:
        return bias + constant[:, 1] - constant[:, 0]
    return bias + constant.flatten()


def fold_slope(
    features: Tensor, targets: Tensor, mass: Tensor, weight: Tensor, shift: Tensor, added: Tensor | None = None
) -> Slope:
    """The losses of K heads on some samples, which count `mass` (K, n), summed; `added` (n, C) goes to every logit.

    Samples stand in columns: few rows times many columns is the faster product.
    """
    outputs = torch.addmm(shift[:, None], weight, features.T)
    if len(weight) == len(mass):  # two classes
        if added is not None:
            outputs += added[:, 1] - added[:, 0]
        value = _two_class_slope_(outputs, targets, mass)
    else:
        if added is not None:
            outputs.view(len(mass), -1, len(targets)).add_(added.T)
        value = _class_slope_(outputs, targets, mass)
    return Slope(value, outputs @ features, outputs.sum(1))


def _two_class_slope_(margins: Tensor, targets: Tensor, mass: Tensor) -> float:
    """Turn margins (K, n) of class 1 into the gradient of the losses with `mass` (K, n), in place; return their sum."""
    signs = (2 * targets - 1).to(margins)
    against = margins.mul_(-signs)
    # A class that a fold has no sample of has a prior of zero there: an infinite loss, of samples that count nothing.
    losses = torch.where(mass > 0, F.softplus(against) * mass, 0.0)
    against.sigmoid_().mul_(mass).mul_(-signs)
    return float(losses.sum(dtype=torch.float64))


def _class_slope_(logits: Tensor, targets: Tensor, mass: Tensor) -> float:
    """The same of logits (K C, n)."""
    stacked = logits.view(len(mass), -1, logits.shape[1])
    each = targets[None, None].expand(len(mass), 1, -1)
    stacked.sub_(stacked.amax(1, keepdim=True))
    own = stacked.gather(1, each)
    total = stacked.exp_().sum(1, keepdim=True)
    losses = torch.where(mass > 0, (total.log() - own)[:, 0] * mass, 0.0)
    stacked.mul_(mass[:, None] / total).scatter_add_(1, each, -mass[:, None])
    return float(losses.sum(dtype=torch.float64))


class AugmentedObjective:
    """ISDA, RISDA and ICDA: two passes over the features, and in between the logits, label after label.

    Besides the features, a copy of them in the order of the labels, it holds three arrays of size N x C, cut into blocks
    (C, n) of one label each.
    """

    def __init__(self, problem: Problem, settings: LossSettings) -> None:
        self.problem, self.settings, self.classes = problem, settings, problem.num_classes
        self.order = torch.argsort(problem.targets, stable=True)
        self.features = problem.features
        self.sorted: Tensor | None = None
        if isinstance(self.features, Tensor) and self.features.nbytes <= SORTED_BYTES:
            self.sorted = self.features[self.order]
        sizes = torch.bincount(problem.targets, minlength=self.classes)
        self.blocks = list(_label_blocks(sizes.tolist()))
        self.mass = (problem.weights / problem.weights.sum())[self.order]
        weights = problem.statistics_weights
        totals = torch.bincount(problem.targets, weights.double(), minlength=self.classes).clamp(min=1e-12)
        # Of a sample in its class's statistics; they sum to one in every class.
        self.share = (weights / totals.to(weights)[problem.targets])[self.order]
        self.mean = self._class_means()
        self.constant, added = problem.constants(settings.name), problem.added
        self.added = None if added is None else self._in_blocks(added.to(self.mass))
        self.relations: Tensor | None = None  # RISDA's
        self.coefficients: list[Tensor] | None = None
        self.margin: Tensor | None = None
        self.first, self.second = (
            torch.empty(len(self.order), self.classes, dtype=self.features.dtype) for _ in range(2)
        )
        self.residuals, self.gradient = self._cut(self.first), self._cut(self.second)

    def follow(self, head: LinearHead) -> None:
        """Read ICDA's strengths off a head, unless the problem has its own; they are constants until the next time."""
        strength = self.problem.strength or self.problem.angles(head)
        towards = (strength.per_class / (self.classes - 1)).to(self.mass)
        self.coefficients = self._in_blocks(towards.scatter_(1, self.problem.targets[:, None], 1))
        self.margin = self.settings.beta * strength.per_sample[self.order].to(self.mass)

    def __call__(self, weight: Tensor, bias: Tensor) -> Slope:
        weight, bias = from_rows(torch.cat([weight, bias[:, None]], 1), self.classes)[0].split([weight.shape[1], 1], 1)
        mean = self.mean @ weight.T
        covariance = self._centre(weight.contiguous(), mean)
        leaves = [part.requires_grad_() for part in (mean, covariance)]
        with torch.enable_grad():
            mixing = self.problem.covariance_mixing
            mixed = covariance if mixing is None else torch.tensordot(mixing.to(covariance), covariance, 1)
            table = adjustment_table(self.settings, LogitMoments(mean, mixed), self.relations)
        value, to_bias, to_table = self._losses(mean.detach() + bias[:, 0] + self.constant, table.detach())
        found = torch.autograd.grad(table, leaves, to_table, allow_unused=True, materialize_grads=True)
        to_mean, to_covariance = (part.detach() for part in found)  # torch 2.6 materialises zeros that need a gradient
        to_weight = self._pull_back(to_covariance + to_covariance.mT).addmm_(to_mean.T, self.mean)
        return Slope(value, to_weight, to_bias).in_rows()

    def _cut(self, values: Tensor) -> list[Tensor]:
        """The memory of an array (N, C) as blocks (C, n)."""
        flat = values.view(-1)
        return [
            flat[span.start * self.classes : span.stop * self.classes].view(self.classes, -1) for _, span in self.blocks
        ]

    def _in_blocks(self, values: Tensor, out: list[Tensor] | None = None) -> list[Tensor]:
        """Values (N, C) of the samples as blocks (C, n) in the order of the labels."""
        out = self._cut(torch.empty_like(values)) if out is None else out
        for (_, span), block in zip(self.blocks, out, strict=True):
            block.copy_(values[self.order[span]].T)
        return out

    def _class_means(self) -> Tensor:
        """mu (C, A), by which means of logits are known without a look at the logits."""
        share, targets = self.share, self.problem.targets[self.order]
        if self.sorted is None:
            targets, share = self.problem.targets, torch.empty_like(share).index_copy_(0, self.order, share)
        mean = torch.zeros(self.classes, self.features.shape[1], dtype=self.features.dtype)
        for span, block in row_chunks(self.features if self.sorted is None else self.sorted):
            mean.index_add_(0, targets[span], block * share[span][:, None])
        return mean

    def _centre(self, weight: Tensor, mean: Tensor) -> Tensor:
        """Covariances (C, C, C) of the logits within each class; less their means and without bias, these are kept."""
        if self.sorted is None:
            self._in_blocks(times(self.features, weight, out=self.second), self.residuals)
        covariance = mean.new_zeros(self.classes, self.classes, self.classes)
        for (label, span), block in zip(self.blocks, self.residuals, strict=True):
            if self.sorted is not None and self.classes == 2:  # opposite rows: one product does for both
                torch.neg(torch.mv(self.sorted[span], weight[1], out=block[1]), out=block[0])
            elif self.sorted is not None:
                torch.mm(weight, self.sorted[span].T, out=block)
            block.sub_(mean[label][:, None])
            covariance[label].addmm_(block * self.share[span], block.T)
        return covariance

    def _losses(self, fixed: Tensor, table: Tensor) -> tuple[float, Tensor, Tensor]:
        """The loss, and its gradient in the bias and the table; that in the logits is kept."""
        value, to_bias, to_table = 0.0, torch.zeros_like(fixed[0]), torch.zeros_like(table)
        for place, (label, span) in enumerate(self.blocks):
            coefficients = None if self.coefficients is None else self.coefficients[place]
            start = fixed[label] if coefficients is not None else fixed[label] + table[label]
            block = torch.add(self.residuals[place], start[:, None], out=self.gradient[place])
            if self.added is not None:
                block += self.added[place]
            margin = None if self.margin is None else self.margin[span]
            value += label_slope_(block, label, self.mass[span], coefficients, margin, table[label])
            to_bias += (sums := block.sum(1))
            if coefficients is None:
                to_table[label] += sums
            else:
                to_table[label].addmm_(coefficients, block.T)
        return value, to_bias, to_table

    def _pull_back(self, to_covariance: Tensor) -> Tensor:
        """The gradient in the weight, from that in the logits and in their covariances, which must be symmetric."""
        total = torch.zeros_like(self.mean)
        for place, (label, span) in enumerate(self.blocks):
            block = self.gradient[place].addmm_(to_covariance[label], self.residuals[place].mul_(self.share[span]))
            if self.sorted is not None:
                total.addmm_(block, self.sorted[span])
        if self.sorted is not None:
            return total
        for (_, span), block in zip(self.blocks, self.gradient, strict=True):
            self.first[self.order[span]] = block.T
        return transposed_times(self.features, self.first)


def adjustment_table(settings: LossSettings, moments: LogitMoments, relations: Tensor | None) -> Tensor:
    """What the augmented losses add to the logits of each label; `relations` (C, C) are RISDA's."""
    if settings.name == "icda":
        return icda_table(moments, settings.lam)
    return label_table(moments, settings.lam, relations if settings.name == "risda" else None, settings.mean_strength)


def label_slope_(
    logits: Tensor, label: int, mass: Tensor, coefficients: Tensor | None, margin: Tensor | None, table: Tensor
) -> float:
    """Turn logits (C, n) of one label's samples into the gradient of their losses, in place; return their sum."""
    if coefficients is not None:
        logits.addmm_(table.T, coefficients)
    if margin is not None:
        logits[label] -= margin  # the same as adding it to every other logit
    logits.sub_(logits.amax(0))
    own = logits[label].clone()
    total = logits.exp_().sum(0)
    logits.mul_(mass / total)[label] -= mass
    return float((mass * (total.log() - own)).sum(dtype=torch.float64))


def _label_blocks(sizes: list[int]) -> Iterator[tuple[int, slice]]:
    """Labels and spans of samples sorted by label, none longer than stays in cache."""
    step = max(256, BLOCK_ELEMENTS // len(sizes))
    start = 0
    for label, size in enumerate(sizes):
        for offset in range(start, start + size, step):
            yield label, slice(offset, min(offset + step, start + size))
        start += size
