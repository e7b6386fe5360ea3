"""ICDA for very many classes: each step compares with the classes of its batch and a few others."""

from __future__ import annotations

from typing import NamedTuple, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.losses.icda import ICDALoss, ICDAOptions
from icda.losses.terms.augmentation import off_target, variance_term
from icda.losses.terms.batch import LossBatch
from icda.losses.terms.prior import check_counted, prior_term
from icda.ranges import NotNegativeInt
from icda.statistics import Moments
from icda.strength import Strength, direct_strength


class Subset(NamedTuple):
    """The classes that a step looks at, and for how many each of them stands."""

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

    >>> loss = SampledICDALoss(num_classes=50_000, feature_dim=8, negatives=20, covariance="diagonal")
    >>> head, features, targets = torch.nn.Linear(8, 50_000), torch.randn(16, 8), torch.arange(16) * 3000
    >>> loss(features, targets, head, progress=0.3).backward()
    >>> int((head.weight.grad.abs().sum(1) > 0).sum())
    36
    """

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        class_counts: Tensor | None = None,
        *,
        negatives: NotNegativeInt = 1024,
        **options: Unpack[ICDAOptions],
    ) -> None:
        super().__init__(num_classes, feature_dim, class_counts, **options)
        if self.label_smoothing > 0 or self.sample_strength != "angle":
            raise InputError(
                f"{self.owner} sees a part of the classes in each step: it has no label_smoothing, and sample_strength is "
                '"angle". Take ICDALoss for either.'
            )
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

    def _loss(self, batch: LossBatch, progress: float, **given: Tensor | None) -> Tensor:
        if not self.training:
            return super()._loss(batch, progress, **given)
        if batch.soft is not None:
            raise InputError(
                f"{self.owner} expects class labels: soft targets have a share for classes that are not drawn."
            )
        subset = self.draw(batch.targets)
        small = _select(batch, subset)
        logits = F.linear(small.features, small.weight, small.bias) if small.logits is None else small.logits
        margin = given.get("prior_margin")
        if margin is not None:
            margin = margin[:, subset.classes]
        return self._judged(small, logits, lambda: self._subset_loss(batch, small, subset, progress, logits, margin))

    def _margin_of(self, batch: LossBatch, attributes: Tensor | None, log_prior: Tensor | None) -> Tensor | None:
        """None for a prior by class counts in training: `_subset_loss` makes it for the classes that are drawn."""
        by_counts = attributes is None and log_prior is None and self.prior is None
        if not (self.training and by_counts):
            return super()._margin_of(batch, attributes, log_prior)
        if self.class_margin and self.class_counts is not None:
            check_counted(self.class_counts, batch.targets)
        return None

    def _subset_loss(
        self, batch: LossBatch, small: LossBatch, subset: Subset, progress: float, logits: Tensor, margin: Tensor | None
    ) -> Tensor:
        self.statistics.fold(batch.features, batch.targets, in_place=True)
        with torch.autocast(logits.device.type, enabled=False):
            dtype = torch.promote_types(small.weight.dtype, torch.float32)
            adjusted = logits.to(dtype) + subset.mass.log().to(dtype)
            if margin is None and self.class_margin and self.class_counts is not None:
                margin = prior_term(self.class_counts[subset.classes], subset.targets, dtype)
            if margin is not None:
                adjusted = adjusted + margin
            for term in self._subset_terms(small, subset, progress, logits.detach().to(dtype)):
                adjusted = adjusted + term
            weight = None if self.class_weight is None else self.class_weight[subset.classes].to(dtype)
            return F.cross_entropy(adjusted, subset.targets, weight, reduction=self.reduction)

    def _subset_terms(self, small: LossBatch, subset: Subset, progress: float, logits: Tensor) -> list[Tensor]:
        """What the strengths of this batch add: the margin of each sample, and the augmentation term."""
        targets, weight = subset.targets, small.weight.to(logits.dtype)
        products = logits if small.bias is None else logits - small.bias.detach().to(logits)
        features = small.features.detach().to(logits)
        strength = direct_strength(features, targets, weight.detach(), products)
        terms = []
        if self.sample_margin and self.beta != 0:
            terms.append(off_target(self.beta * strength.per_sample, targets, len(subset.classes)))
        lam = self.lambda0 * progress
        if lam > 0 and (self.semantic or self.counterfactual):
            moments = self.statistics.moments(subset.classes)
            terms.append(self._subset_augmentation(weight, subset, strength, moments, lam))
        return terms

    def _subset_augmentation(
        self, weight: Tensor, subset: Subset, strength: Strength, moments: Moments, lam: float
    ) -> Tensor:
        others = max(subset.others, 1.0)  # a batch of one class has no other
        towards = strength.per_class / others
        coefficients = towards * subset.mass.to(towards) if self.counterfactual else towards * 0
        if self.semantic:
            coefficients = coefficients.scatter(1, subset.targets[:, None], 1)
        mean_towards = towards if self.counterfactual else None
        return variance_term(weight, subset.targets, coefficients, moments, lam, mean_towards, self.variance_bound)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, negatives={self.negatives}"


def _select(batch: LossBatch, subset: Subset) -> LossBatch:
    """The batch as a problem of the chosen classes. `embedding` has a faster gradient than an index."""
    bias = None if batch.bias is None else batch.bias[subset.classes]
    logits = None if batch.logits is None else batch.logits[:, subset.classes]
    weight = F.embedding(subset.classes, batch.weight)
    return batch._replace(targets=subset.targets, weight=weight, bias=bias, logits=logits)
