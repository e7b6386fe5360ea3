"""Value and gradient of the losses at a head, in closed form and block by block: what L-BFGS calls again and again.

`icda.linear.objective` says what the losses are. Three things make this form fast. A softmax does not see what is added to
all of a row, so the prior is one constant per class. The augmentation terms see the samples only through the table
Q_{y,j,c} = d_c^T Sigma_j d_c with d_c = w_c - w_y, so that the samples of a label take one product with its slice of the
table. And whatever has the size N x C is worked through in blocks that stay in cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from icda.linear.objective import LossSettings
from icda.linear.problem import Problem
from icda.linear.rows import row_chunks, times, transposed_times
from icda.losses.terms.prior import check_counted
from icda.strength import Strength

BLOCK_ELEMENTS = 2**18


@dataclass(frozen=True)
class Slope:
    """The mean loss, weight decay not included, and its gradient in weight (C, A) and bias (C,)."""

    value: float
    to_weight: Tensor
    to_bias: Tensor


def make_objective(
    problem: Problem,
    settings: LossSettings,
    strength: Strength | None = None,
    relations: Tensor | None = None,
    basis: Tensor | None = None,
) -> PlainObjective | AugmentedObjective:
    """The loss as a function of weight and bias; ICDA needs `strength` and RISDA `relations`, held constant.

    With a `basis` (C, R) the head is basis @ weight of weight (R, A), and basis @ bias: two classes need one row only.
    """
    if settings.name in ("ce", "la"):
        return PlainObjective(problem, settings, basis)
    return AugmentedObjective(problem, settings, strength, relations, basis)


def softmax_gradient_(logits: Tensor, targets: Tensor, mass: Tensor) -> float:
    """Turn logits into the gradient of sum_i mass_i CE_i, in place, and return that sum.

    >>> logits = torch.zeros(1, 2)
    >>> round(softmax_gradient_(logits, torch.tensor([0]), torch.ones(1)), 6), logits.tolist()
    (0.693147, [[-0.5, 0.5]])
    """
    mass, targets = mass[:, None], targets[:, None]
    logits.sub_(logits.amax(1, keepdim=True))
    own = logits.gather(1, targets)
    total = logits.exp_().sum(1, keepdim=True)
    value = float((mass * (total.log() - own)).sum(dtype=torch.float64))
    logits.mul_(mass / total).scatter_add_(1, targets, -mass)
    return value


class PlainObjective:
    """Cross entropy and logit adjustment: one pass over the features does it all."""

    def __init__(self, problem: Problem, settings: LossSettings, basis: Tensor | None) -> None:
        self.features, self.targets, self.basis = problem.features, problem.targets, basis
        self.mass = problem.weights / problem.weights.sum()
        self.constant, self.per_sample = constants_of(problem, settings)

    def __call__(self, weight: Tensor, bias: Tensor) -> Slope:
        value = 0.0
        to_weight, to_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        basis = self.basis
        shift = self.constant + (bias if basis is None else basis @ bias)
        for span, block in row_chunks(self.features):
            if basis is None:
                logits = torch.addmm(shift, block, weight.T)
            else:
                logits = torch.addmm(shift, block @ weight.T, basis.T)
            if self.per_sample is not None:
                logits += self.per_sample[span]
            value += softmax_gradient_(logits, self.targets[span], self.mass[span])
            gradient = logits if basis is None else logits @ basis
            to_weight.addmm_(gradient.T, block)
            to_bias += gradient.sum(0)
        return Slope(value, to_weight, to_bias)


class AugmentedObjective:
    """ISDA, RISDA and ICDA: two passes over the features, and in between the logits, sorted by label.

    Besides the features it holds two arrays of size N x C, and for ICDA the strengths.
    """

    def __init__(
        self,
        problem: Problem,
        settings: LossSettings,
        strength: Strength | None,
        relations: Tensor | None,
        basis: Tensor | None,
    ) -> None:
        self.features, self.settings, self.relations, self.basis = problem.features, settings, relations, basis
        self.order = torch.argsort(problem.targets, stable=True)
        self.targets = problem.targets[self.order]
        sizes = torch.bincount(problem.targets, minlength=problem.num_classes)
        self.blocks = list(_label_blocks(sizes.tolist()))
        self.mass = (problem.weights / problem.weights.sum())[self.order]
        self.share = _shares(problem)[self.order]  # of a sample in its class's statistics
        self.constant, per_sample = constants_of(problem, settings)
        self.per_sample = None if per_sample is None else per_sample[self.order]
        mixing = problem.covariance_mixing
        self.mixing = None if mixing is None else mixing.to(self.mass)
        self.towards: Tensor | None = None
        if settings.name == "icda":
            assert strength is not None
            self.towards = (strength.per_class[self.order] / (problem.num_classes - 1)).to(self.mass)
            self.margin = settings.beta * strength.per_sample[self.order].to(self.mass)
        self.first = torch.empty(len(self.targets), problem.num_classes, dtype=problem.features.dtype)
        self.second = torch.empty_like(self.first)

    def __call__(self, weight: Tensor, bias: Tensor) -> Slope:
        if self.basis is None:
            logits = times(self.features, weight, out=self.first)
        else:
            logits = torch.mm(times(self.features, weight), self.basis.T, out=self.first)
            bias = self.basis @ bias
        residuals = torch.index_select(logits, 0, self.order, out=self.second)
        mean, covariance = (part.requires_grad_() for part in self._centre(residuals))
        with torch.enable_grad():
            mixed = covariance if self.mixing is None else torch.tensordot(self.mixing, covariance, 1)
            spread, shift = augmentation_tables(self.settings, mean, mixed, self.relations)
        gradient = self.first  # the logits themselves are no longer needed
        value, to_bias, slopes = self._losses(
            residuals, gradient, mean.detach() + bias, spread.detach(), shift.detach()
        )
        to_both = torch.autograd.grad(
            (spread, shift), (mean, covariance), slopes, allow_unused=True, materialize_grads=True
        )
        to_mean, to_covariance = (
            part.detach() for part in to_both
        )  # torch 2.6 materialises zeros that need a gradient
        symmetric = to_covariance + to_covariance.mT
        for label, span in self.blocks:
            share = self.share[span]
            gradient[span].addmm_(residuals[span] * share[:, None], symmetric[label]).addr_(share, to_mean[label])
        unsorted = self.second.index_copy_(0, self.order, gradient)
        if self.basis is not None:
            unsorted, to_bias = unsorted @ self.basis, self.basis.T @ to_bias
        return Slope(value, transposed_times(self.features, unsorted), to_bias)

    def _centre(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Means (C, C) and covariances (C, C, C) of the logits within each class; the logits lose their means in place."""
        classes = logits.shape[1]
        mean = logits.new_zeros(classes, classes)
        covariance = logits.new_zeros(classes, classes, classes)
        for label, span in self.blocks:
            mean[label] += self.share[span] @ logits[span]
        for label, span in self.blocks:
            residuals = logits[span].sub_(mean[label])
            covariance[label].addmm_((residuals * self.share[span][:, None]).T, residuals)
        return mean, covariance

    def _losses(
        self, residuals: Tensor, gradient: Tensor, base: Tensor, spread: Tensor, shift: Tensor
    ) -> tuple[float, Tensor, tuple[Tensor, Tensor]]:
        """The loss, its gradient in bias and tables, and in the sorted logits as if the tables were constants."""
        value, to_bias = 0.0, torch.zeros_like(self.constant)
        to_spread, to_shift = torch.zeros_like(spread), torch.zeros_like(shift)
        base = base + self.constant
        for label, span in self.blocks:
            block = gradient[span]
            towards = None if self.towards is None else self.towards[span]
            # The own covariance counts fully: its strength is 1, which `towards` leaves out.
            fixed = base[label] + (shift[label] if towards is None else spread[label, label])
            torch.add(residuals[span], fixed, out=block)
            if towards is not None:
                block.addmm_(towards, spread[label]).addcmul_(towards, shift[label])
                block[:, label] -= self.margin[span]  # the same as adding it to every other logit
            if self.per_sample is not None:
                block += self.per_sample[span]
            value += softmax_gradient_(block, self.targets[span], self.mass[span])
            sums = block.sum(0)
            to_bias += sums
            if towards is None:
                to_shift[label] += sums
            else:
                to_spread[label].addmm_(towards.T, block)
                to_spread[label, label] += sums
                to_shift[label] += (towards * block).sum(0)
        return value, to_bias, (to_spread, to_shift)


def augmentation_tables(
    settings: LossSettings, mean: Tensor, covariance: Tensor, relations: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What strengths multiply, (C, C, C), and what is added to the logits of a label's samples, (C, C).

    From the logits' means (C, C) and covariances (C, C, C) within classes. For ICDA the second is multiplied by the
    strength towards c too.
    """
    squares = covariance.diagonal(dim1=1, dim2=2)  # of class j and logit c
    half = 0.5 * settings.lam
    between = squares[None] - 2 * covariance.transpose(0, 1) + squares.T[:, :, None]  # Q_{y,j,c}
    if settings.name == "icda":
        return half * between, settings.lam * (mean.diagonal() - mean.T)  # d_c . mu_c
    labels = torch.arange(len(mean))
    if settings.name == "isda":
        return covariance, half * between[labels, labels]
    assert relations is not None
    moved = (relations - torch.eye(len(mean), dtype=mean.dtype)) @ mean  # w_c . mu~_y
    shift = half * (relations[:, :, None] * between).sum(1)
    return covariance, shift + settings.mean_strength * (moved - moved.diagonal()[:, None])


def constants_of(problem: Problem, settings: LossSettings) -> tuple[Tensor, Tensor | None]:
    """What is always added to the logits: the same for all samples (C,), and different for each (N, C) or None."""
    constant = torch.zeros(problem.num_classes, dtype=torch.float64)
    if problem.log_prior is not None:
        return constant.to(problem.features.dtype), problem.added
    if settings.name in ("la", "icda"):
        check_counted(problem.class_counts, problem.targets)
        constant = problem.class_counts.double().log()
        constant = constant - constant.max()
    if problem.margins is not None:
        constant = constant + problem.margins.double()
    return constant.to(problem.features.dtype), None


def _shares(problem: Problem) -> Tensor:
    """Each sample's part of its class's statistics; they sum to one in every class."""
    weights = problem.statistics_weights
    totals = torch.bincount(problem.targets, weights.double(), minlength=problem.num_classes)
    return weights / totals.clamp(min=1e-12).to(weights)[problem.targets]


def _label_blocks(sizes: list[int]) -> Iterator[tuple[int, slice]]:
    """Labels and spans of samples sorted by label, none longer than stays in cache."""
    step = max(256, BLOCK_ELEMENTS // len(sizes))
    start = 0
    for label, size in enumerate(sizes):
        for offset in range(start, start + size, step):
            yield label, slice(offset, min(offset + step, start + size))
        start += size
