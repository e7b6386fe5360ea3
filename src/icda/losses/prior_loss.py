"""Losses whose class margin is a log ratio of priors: LA and ICDA build on this."""

from typing import Any

import torch
from torch import Tensor

from icda.errors import InputError
from icda.functional.prior import conditional_log_prior, log_ratio
from icda.losses.base import AdjustedLoss
from icda.losses.batch import LossBatch
from icda.losses.inputs import Counts, check_counts


class PriorLoss(AdjustedLoss):
    """A loss with the margin log p(c)/p(y), where p says how likely each class is before the sample is looked at.

    Three things can say it. `class_counts`: p is the share of each class. `prior`, a (K, C) table of how many training
    samples have attribute value k and class c: p is the share of each class among the samples of that value, and every call
    brings `attributes` (N,). Or the call brings `log_prior` (N, C), log probabilities up to a constant per sample, which
    take the place of the counts. Priors carry no gradient.

    Args:
        prior: Table (K, C) of how many samples have an attribute value and a class; calls then bring `attributes` (N,).
    """

    prior: Tensor | None

    def __init__(
        self, num_classes: int, feature_dim: int, class_counts: Counts = None, *, prior: Counts = None, **options: Any
    ) -> None:
        super().__init__(num_classes, feature_dim, class_counts, **options)
        self.register_buffer("prior", check_counts(self, prior, "prior"))

    @property
    def margin_scale(self) -> float:
        """What the margin is multiplied by; 0 turns it off."""
        return 1.0

    def compute_phi(self, batch: LossBatch) -> Tensor | None:
        phi, margin = super().compute_phi(batch), self.margin_of(batch)
        return phi if margin is None else margin if phi is None else phi + margin

    def margin_of(self, batch: LossBatch) -> Tensor | None:
        dtype = torch.promote_types(batch.weight.dtype, torch.float32)
        return self.prior_margin(batch.targets, dtype, batch.attributes, batch.log_prior)

    def prior_margin(
        self, targets: Tensor, dtype: torch.dtype, attributes: Tensor | None = None, log_prior: Tensor | None = None
    ) -> Tensor | None:
        """log p(c)/p(y) (N, C), zero at the target; None where the loss has no such term, or nothing says p."""
        if self.margin_scale == 0:  # not 0 * -inf for a class without samples
            return None
        if log_prior is None and self.prior is not None:
            log_prior = conditional_log_prior(self.prior)[attributes]
        elif log_prior is None and self.class_counts is not None:
            log_prior = self.class_counts.log()
        return None if log_prior is None else self.margin_scale * log_ratio(log_prior, targets, dtype)

    def counts_read(self, batch: LossBatch) -> Tensor | None:
        if self.margin_scale == 0 or batch.log_prior is not None:
            return None
        return self.class_counts if self.prior is None else self.prior.sum(0)

    def check_prior(self, attributes: Any, log_prior: Any) -> None:
        owner = type(self).__name__
        if attributes is not None and log_prior is not None:
            raise InputError(f"{owner} got both attributes and log_prior: give the one that holds the prior.")
        if self.prior is None and attributes is not None:
            raise InputError(f"{owner} got attributes without a table of counts: make it with prior=, a (K, C) table.")
        if self.prior is not None and attributes is None:
            raise InputError(
                f"{owner} was made with prior, a table over {len(self.prior)} attribute values, and needs attributes=, one "
                f"per sample; got {'none' if log_prior is None else 'log_prior'}."
            )
