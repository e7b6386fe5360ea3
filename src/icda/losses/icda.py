"""Implicit counterfactual data augmentation (ICDA): the paper's loss."""

from typing import Any, Literal

import torch
from torch import Tensor

from icda.errors import InputError
from icda.functional.augmentation import Term, icda_coefficients, off_target, variance_term
from icda.functional.moments import Moments
from icda.functional.strength import Strength, direct_strength
from icda.losses.augmented import StatisticsLoss
from icda.losses.batch import LossBatch, is_off
from icda.losses.inputs import Counts
from icda.losses.prior_loss import PriorLoss
from icda.statistics.checks import check_flags, check_number


class ICDALoss(PriorLoss, StatisticsLoss):
    """Cross entropy of z + phi-hat, a surrogate for infinitely many counterfactual augmentations (eq. 4).

    phi-hat_{i,c} = (lambda/2) P_{i,c} + lambda alpha-hat_{i,c} d_c.mu_c + log(pi_c/pi_y) + beta alpha_i for c != y, where
    P maps the covariances of the own class and of the classes a sample is tied to on the boundary between y and c, and
    lambda = lambda0 * progress. In train mode a call first folds the features into `statistics`.

    Reference: Zhou, Wu, Ng, "Implicit counterfactual data augmentation for robust learning", arXiv 2304.13431.
    Differs from the paper in the normaliser (batch mean; mathematics 4.3); strengths are detached (mathematics 4.1).

    Args:
        beta: Strength of the sample margin.
        semantic: Whether the own class's covariance counts.
        counterfactual: Whether the other classes' covariances and means count; without it, the paper's setting I.
        class_margin: Whether the prior log(pi_c/pi_y) counts; without it, setting II.
        sample_margin: Whether beta alpha_i counts; without it, setting III.
        sample_strength: alpha_i by the "angle" with the own class's weight, or the "mean" of the alpha_{i,c}.

    >>> loss = ICDALoss(num_classes=3, feature_dim=8, class_counts=torch.tensor([50, 30, 20]))
    >>> head, features, targets = torch.nn.Linear(8, 3), torch.randn(16, 8), torch.arange(16) % 3
    >>> loss(features, targets, head, progress=0.3).backward()
    >>> bool((loss.adjustment(features, targets, head).gather(1, targets[:, None]) == 0).all())
    True
    """

    names = ("icda",)

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        class_counts: Counts = None,
        *,
        lambda0: float = 0.5,
        beta: float = 0.1,
        semantic: bool = True,
        counterfactual: bool = True,
        class_margin: bool = True,
        sample_margin: bool = True,
        sample_strength: Literal["angle", "mean"] = "angle",
        **options: Any,
    ) -> None:
        super().__init__(num_classes, feature_dim, class_counts, lambda0=lambda0, **options)
        check_number(beta, "beta", type(self).__name__, 0)
        if sample_strength not in ("angle", "mean"):
            raise InputError(f"sample_strength must be angle or mean, got {sample_strength!r}.")
        self.beta, self.sample_strength = beta, sample_strength
        self.semantic, self.counterfactual = semantic, counterfactual
        self.class_margin, self.sample_margin = class_margin, sample_margin
        check_flags(self, "semantic", "counterfactual", "class_margin", "sample_margin")

    @property
    def margin_scale(self) -> float:
        return float(self.class_margin)

    def compute_adjustment(
        self, features: Tensor, targets: Tensor, weight: Tensor, progress: Any, products: Tensor
    ) -> Tensor | None:
        strength = self.strength(features, targets, weight, products)
        return self._terms(targets, weight, progress, strength, self.statistics.moments())

    def strength(self, features: Tensor, targets: Tensor, weight: Tensor, products: Tensor | None = None) -> Strength:
        """alpha_{i,c} and alpha_i of a batch (section 4.1)."""
        strength = direct_strength(features, targets, weight.detach(), products)
        if self.sample_strength == "mean":
            strength = strength._replace(per_sample=strength.per_class.sum(1) / (self.num_classes - 1))
        return strength

    def combine(
        self, targets: Tensor, weight: Tensor, progress: Any, strength: Strength, moments: Moments | None = None
    ) -> Tensor | None:
        """phi-hat from given strengths and, if not the running ones, given moments; None when every term is off."""
        terms = self._terms(targets, weight, progress, strength, moments or self.statistics.moments())
        margin = self.prior_margin(targets, weight.dtype)
        return terms if margin is None else margin if terms is None else terms + margin

    def prepare(self, batch: LossBatch) -> LossBatch:
        return batch if self._fuses(batch) else batch.with_logits()

    def adjusted(self, batch: LossBatch) -> Tensor:
        if batch.logits is not None:
            return super().adjusted(batch)
        from icda.functional.fused import adjusted_logits

        with torch.no_grad():
            plain = batch.features @ batch.weight.T
        strength = self.strength(batch.features.detach(), batch.targets, batch.weight, plain)
        coefficients, towards = icda_coefficients(batch.targets, strength, self.semantic, self.counterfactual)
        lam, moments = self.lambda0 * batch.progress, self.statistics.moments()
        term = Term(batch.targets, coefficients, towards, moments, lam, self.variance_bound)
        adjusted = adjusted_logits(batch.features, batch.weight, batch.bias, plain, *term)
        for margin in (self.margin_of(batch), self._sample_margin(batch.targets, strength)):
            adjusted = adjusted if margin is None else adjusted + margin
        return adjusted

    def _terms(
        self, targets: Tensor, weight: Tensor, progress: Any, strength: Strength, moments: Moments
    ) -> Tensor | None:
        """(lambda/2) P + lambda M + beta alpha."""
        margin, lam = self._sample_margin(targets, strength), self.lambda0 * progress
        if is_off(lam) or not (self.semantic or self.counterfactual):
            return margin
        coefficients, towards = icda_coefficients(targets, strength, self.semantic, self.counterfactual)
        term = variance_term(weight, targets, coefficients, moments, lam, towards, self.variance_bound)
        return term if margin is None else term + margin

    def _sample_margin(self, targets: Tensor, strength: Strength) -> Tensor | None:
        if not self.sample_margin or self.beta == 0:
            return None
        return off_target(self.beta * strength.per_sample, targets, self.num_classes)

    def _fuses(self, batch: LossBatch) -> bool:
        """Whether logits and augmentation term can be computed, and differentiated, in one step."""
        if torch.compiler.is_compiling() or self.statistics.kind != "diagonal" or is_off(self.lambda0 * batch.progress):
            return False
        same = batch.features.dtype == self.statistics.mean.dtype == batch.weight.dtype
        plain = batch.logits is None and not torch.is_autocast_enabled(batch.features.device.type)
        return same and plain and (self.semantic or self.counterfactual)
