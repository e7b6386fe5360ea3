"""Implicit counterfactual data augmentation (ICDA): the paper's loss."""

from __future__ import annotations

from typing import Literal, Unpack

import torch
from torch import Tensor

from icda.errors import InputError
from icda.losses.augmented import StatisticsLoss, StatisticsOptions
from icda.losses.base import LOSSES
from icda.losses.prior_loss import PriorLoss
from icda.losses.terms.augmentation import off_target, variance_term
from icda.losses.terms.batch import LossBatch
from icda.losses.terms.fused import adjusted_logits
from icda.losses.terms.progress import is_off
from icda.ranges import NotNegative
from icda.statistics import Moments
from icda.strength import Strength, direct_strength


class ICDAOptions(StatisticsOptions, total=False):
    prior: Tensor | None


@LOSSES.register("icda")
class ICDALoss(PriorLoss, StatisticsLoss):
    """Cross entropy of z + phi-hat, the limit of infinitely many semantic and counterfactual augmentations (eq. 4).

    phi-hat_{i,c} = (lambda/2) P_{i,c} + lambda alpha-hat_{i,c} d_c.mu_c + log(pi_c/pi_y) + beta alpha_i for c != y, where
    P maps the covariances of the own class and of the classes a sample is tied to on the boundary between y and c. Each
    switch turns one part off, as in the paper's ablation: `semantic` the own covariance, `counterfactual` the other
    classes' covariances and means (setting I), `class_margin` the prior (II), `sample_margin` beta alpha_i (III).
    `class_counts=None` means balanced classes. The prior may depend on an attribute, `prior` and `attributes=` in the call,
    or be given per sample, `log_prior=` in the call (`PriorLoss`; ours, not the paper's). In train mode a call first folds
    the features into `statistics`.

    Reference: Zhou, Wu, Ng, "Implicit counterfactual data augmentation for robust learning", arXiv 2304.13431.
    Differs from the paper in the normaliser (batch mean; mathematics 4.3); strengths are detached (mathematics 4.1).

    >>> loss = ICDALoss(num_classes=3, feature_dim=8, class_counts=torch.tensor([50, 30, 20]))
    >>> head, features, targets = torch.nn.Linear(8, 3), torch.randn(16, 8), torch.arange(16) % 3
    >>> loss(features, targets, head, progress=0.3).backward()
    >>> bool((loss.adjustment(features, targets, head).gather(1, targets[:, None]) == 0).all())
    True
    """

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        class_counts: Tensor | None = None,
        *,
        lambda0: NotNegative = 0.5,
        beta: NotNegative = 0.1,
        semantic: bool = True,
        counterfactual: bool = True,
        class_margin: bool = True,
        sample_margin: bool = True,
        sample_strength: Literal["angle", "mean"] = "angle",
        **options: Unpack[ICDAOptions],
    ) -> None:
        super().__init__(num_classes, feature_dim, class_counts, lambda0=lambda0, **options)
        if sample_strength not in ("angle", "mean"):
            raise InputError(f"sample_strength must be angle or mean, got {sample_strength!r}.")
        self.beta = beta
        self.semantic, self.counterfactual = semantic, counterfactual
        self.class_margin, self.sample_margin = class_margin, sample_margin
        self.sample_strength = sample_strength

    @property
    def has_class_margin(self) -> bool:
        return self.class_margin

    def compute_adjustment(
        self,
        features: Tensor,
        targets: Tensor,
        weight: Tensor,
        progress: float,
        products: Tensor,
        prior_margin: Tensor | None = None,
    ) -> Tensor | None:
        strength = self.strength(features, targets, weight, products)
        return self._sum(targets, weight, progress, strength, None, prior_margin)

    def strength(self, features: Tensor, targets: Tensor, weight: Tensor, products: Tensor | None = None) -> Strength:
        """alpha_{i,c} and alpha_i of a batch (section 4.1)."""
        strength = direct_strength(features, targets, weight.detach(), products)
        if self.sample_strength == "mean":
            strength = strength._replace(per_sample=strength.per_class.sum(1) / (self.num_classes - 1))
        return strength

    def combine(
        self,
        targets: Tensor,
        weight: Tensor,
        progress: float,
        strength: Strength,
        moments: Moments | None = None,
        *,
        attributes: Tensor | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor | None:
        """phi-hat from given strengths and, if not the running ones, given moments; None when every term is off."""
        margin = self.prior_margin(targets, weight.dtype, attributes, log_prior)
        return self._sum(targets, weight, progress, strength, moments, margin)

    def _loss(self, batch: LossBatch, progress: float, **given: Tensor | None) -> Tensor:
        if batch.logits is not None or not self._fuses(batch.features, batch.weight, progress):
            return super()._loss(batch, progress, **given)
        with torch.no_grad():
            plain = batch.features @ batch.weight.T
        return self._judged(batch, plain, lambda: self._fused_loss(batch, progress, plain, **given))

    def _sum(
        self,
        targets: Tensor,
        weight: Tensor,
        progress: float,
        strength: Strength,
        moments: Moments | None,
        prior_margin: Tensor | None,
    ) -> Tensor | None:
        terms = self._margins(targets, strength, prior_margin)
        lam = self.lambda0 * progress
        if not is_off(lam) and (self.semantic or self.counterfactual):
            coefficients, towards = self._coefficients(targets, strength)
            moments = moments or self.statistics.moments()
            terms.append(variance_term(weight, targets, coefficients, moments, lam, towards, self.variance_bound))
        return sum(terms[1:], terms[0]) if terms else None

    def _margins(self, targets: Tensor, strength: Strength, prior_margin: Tensor | None) -> list[Tensor]:
        terms = [] if prior_margin is None else [prior_margin]
        if self.sample_margin and self.beta != 0:
            terms.append(off_target(self.beta * strength.per_sample, targets, self.num_classes))
        return terms

    def _coefficients(self, targets: Tensor, strength: Strength) -> tuple[Tensor, Tensor | None]:
        """What each class's covariance counts, and alpha-hat where means count too."""
        towards = strength.per_class / (self.num_classes - 1)
        coefficients = towards if self.counterfactual else towards * 0
        if self.semantic:
            coefficients = coefficients.scatter(1, targets[:, None], 1)
        return coefficients, towards if self.counterfactual else None

    def _fuses(self, features: Tensor, weight: Tensor, progress: float) -> bool:
        """Whether logits and augmentation term can be computed, and differentiated, in one step."""
        if torch.compiler.is_compiling() or self.statistics.kind != "diagonal" or is_off(self.lambda0 * progress):
            return False
        same = features.dtype == self.statistics.mean.dtype == weight.dtype
        plain = not torch.is_autocast_enabled(features.device.type)
        return same and plain and (self.semantic or self.counterfactual)

    def _fused_loss(
        self, batch: LossBatch, progress: float, plain: Tensor, prior_margin: Tensor | None = None
    ) -> Tensor:
        features, targets, weight, bias = batch.features, batch.targets, batch.weight, batch.bias
        if self.folds:
            self.statistics.fold(features, targets)
        strength = self.strength(features.detach(), targets, weight, plain)
        coefficients, towards = self._coefficients(targets, strength)
        lam, moments = self.lambda0 * progress, self.statistics.moments()
        adjusted = adjusted_logits(
            features, weight, bias, plain, targets, coefficients, towards, moments, lam, self.variance_bound
        )
        for term in self._margins(targets, strength, prior_margin):
            adjusted = adjusted + term
        return self._reduce(adjusted, batch)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, lambda0={self.lambda0}, beta={self.beta}"
