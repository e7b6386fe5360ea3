"""ICDA for very many classes: each step compares with the classes of its batch and a few others."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.functional.augmentation import off_target, variance_term
from icda.functional.prior import log_ratio
from icda.functional.strength import Strength, direct_strength
from icda.losses.batch import LossBatch, is_off
from icda.losses.icda import ICDALoss
from icda.statistics.checks import check_number


class Subset(NamedTuple):
    """The classes that a step uses, and how many classes each of them stands for."""

    classes: Tensor  # (K,) those of the batch first
    targets: Tensor  # (N,) the place of each label among them
    mass: Tensor  # (K,) 1 for a class of the batch; a drawn one also stands for those that were not drawn

    @property
    def others(self) -> float:
        """For how many classes besides its own a sample is compared."""
        return float(self.mass.sum()) - 1


class SampledICDALoss(ICDALoss):
    """The ICDA loss of the batch's classes and of `negatives` others, drawn in each call.

    What a call computes grows with these, not with C; the gradient of the head's weight has all its rows, as ever.
    A drawn class stands for (C - B)/K classes, where B are in the batch and K are drawn, uniformly and without
    repetition: its exponential counts that often in the softmax, and its covariance that often among those that a sample is
    tied to. Both sums are then unbiased estimates of those of `ICDALoss`. The logarithm of the softmax's sum is not: the
    loss is too small on average, by an amount that falls as K grows, and is that of `ICDALoss` once K = C - B.
    With `negatives=0` it is the ICDA loss of the problem that has the batch's classes alone.

    Give no `logits`, else all of them are computed. Draws come from torch's generator on the CPU. In eval mode no class is
    left out. Other options are those of `ICDALoss`; diagonal or low-rank covariances are what fits many classes.

    Ours, after sampled softmax (Bengio and Senecal, 2008); mathematics 2.6.

    Args:
        negatives: How many classes that are not in the batch are drawn in each call.

    >>> loss = SampledICDALoss(num_classes=50_000, feature_dim=8, negatives=20, covariance="diagonal")
    >>> head, features, targets = torch.nn.Linear(8, 50_000), torch.randn(16, 8), torch.arange(16) * 3000
    >>> loss(features, targets, head, progress=0.3).backward()
    >>> int((head.weight.grad.abs().sum(1) > 0).sum())
    36
    """

    def __init__(self, *sizes: Any, negatives: int = 1024, **options: Any) -> None:
        super().__init__(*sizes, **options)
        if self.label_smoothing > 0 or self.sample_strength != "angle":
            raise InputError(
                f"{type(self).__name__} sees a part of the classes in each step: it has no label_smoothing, and "
                'sample_strength is "angle". Take ICDALoss for either.'
            )
        check_number(negatives, "negatives", type(self).__name__, 0, whole=True)
        self.negatives = negatives

    def draw(self, targets: Tensor) -> Subset:
        """The classes of a batch, ascending, and `negatives` others, or all of them if there are fewer."""
        own, places = torch.unique(targets, return_inverse=True)
        rest = self.num_classes - len(own)
        count = min(self.negatives, rest)
        if count == 0:
            return Subset(own, places, torch.ones(len(own), device=own.device))
        absent = torch.ones(self.num_classes, dtype=torch.bool, device=own.device)
        absent[own] = False
        chosen = torch.randperm(rest)[:count].sort().values.to(own.device)
        classes = torch.cat([own, absent.nonzero()[:, 0][chosen]])
        mass = torch.cat([torch.ones(len(own)), torch.full((count,), rest / count)]).to(own.device)
        return Subset(classes, places, mass)

    def loss(self, batch: LossBatch) -> Tensor:
        if not (self.training and torch.is_grad_enabled()) or batch.is_repeated:
            return super().loss(batch)
        if batch.soft is not None:
            raise InputError(
                f"{type(self).__name__} expects class labels: soft targets have a share for classes that are not drawn."
            )
        if batch.valid is not None:
            kept = batch.valid.nonzero().flatten()
            value = self.loss(_rows(batch, kept))
            return value if value.dim() == 0 else value.new_zeros(len(batch.valid)).index_copy(0, kept, value)
        self.statistics.fold(batch.features, batch.targets, in_place=True)
        subset = self.draw(batch.targets)
        small = _select(batch, subset).with_logits()
        with torch.autocast(batch.features.device.type, enabled=False):
            features, targets, weight, progress, products = small.constants()
            adjusted = small.wide_logits + subset.mass.log().to(weight)
            strength = direct_strength(features, targets, weight.detach(), products)
            for term in self._subset_terms(targets, weight, progress, strength, batch, subset):
                adjusted = adjusted + term
            class_weight = None if self.class_weight is None else self.class_weight[subset.classes].to(adjusted)
            return F.cross_entropy(adjusted, targets, class_weight, reduction=self.reduction)

    def _subset_terms(
        self, targets: Tensor, weight: Tensor, progress: Any, strength: Strength, batch: LossBatch, subset: Subset
    ) -> Iterator[Tensor]:
        """What is added to the logits of the drawn classes: both margins, and the augmentation term."""
        if batch.log_prior is None and self.prior is None and self.class_counts is not None and self.class_margin:
            yield log_ratio(self.class_counts[subset.classes].log(), targets, weight.dtype)
        elif (margin := self.margin_of(batch)) is not None:
            yield margin[:, subset.classes]
        if self.sample_margin and self.beta != 0:
            yield off_target(self.beta * strength.per_sample, targets, len(subset.classes))
        lam = self.lambda0 * progress
        if is_off(lam) or not (self.semantic or self.counterfactual):
            return
        towards = strength.per_class / max(subset.others, 1.0)  # a batch of one class has no other
        coefficients = towards * subset.mass.to(towards) if self.counterfactual else towards * 0
        if self.semantic:
            coefficients = coefficients.scatter(1, targets[:, None], 1)
        moments = self.statistics.moments(subset.classes)
        mean_towards = towards if self.counterfactual else None
        yield variance_term(weight, targets, coefficients, moments, lam, mean_towards, self.variance_bound)


def _select(batch: LossBatch, subset: Subset) -> LossBatch:
    """The batch as a problem of the chosen classes. `embedding` has a faster gradient than an index."""
    bias = None if batch.bias is None else batch.bias[subset.classes]
    logits = None if batch.logits is None else batch.logits[:, subset.classes]
    weight = F.embedding(subset.classes, batch.weight)
    return LossBatch(batch.features, subset.targets, weight, bias, batch.progress, logits)


def _rows(batch: LossBatch, kept: Tensor) -> LossBatch:
    """Some samples, all of which count."""
    names = ("features", "targets", "logits", "soft", "attributes", "log_prior")
    given = {name: value for name in names if (value := getattr(batch, name)) is not None}
    return replace(batch, valid=None, **{name: value[kept] for name, value in given.items()})
