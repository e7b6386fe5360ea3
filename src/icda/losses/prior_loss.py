"""Losses whose class margin is a log ratio of priors: LA and ICDA build on this."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from icda.errors import InputError, InputTypeError
from icda.losses.base import AdjustedLoss
from icda.losses.terms.batch import LossBatch
from icda.losses.terms.head import Head
from icda.losses.terms.prior import attribute_log_prior, log_ratio, prior_term
from icda.statistics.checks import check_device, check_float, check_tensor


class PriorLoss(AdjustedLoss):
    """A loss with the margin log p(c)/p(y), where p says how likely each class is before the sample is looked at.

    Three things can say it. `class_counts`: p is the share of each class. `prior`, a (K, C) table of how many training
    samples have attribute value k and class c: p is the share of each class among the samples of that value, and every call
    brings `attributes` (N,). Or the call brings `log_prior` (N, C), log probabilities up to a constant per sample, which
    take the place of the counts. Priors carry no gradient.
    """

    prior: Tensor | None

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        class_counts: Tensor | None = None,
        *,
        prior: Tensor | None = None,
        **options: Any,
    ) -> None:
        super().__init__(num_classes, feature_dim, class_counts, **options)
        self.register_buffer("prior", None if prior is None else check_table(prior, num_classes, self.owner))

    @property
    def has_class_margin(self) -> bool:
        """Whether the margin enters the loss; a switch or a factor of zero turns it off."""
        return True

    @property
    def reads_counts(self) -> bool:
        return self.has_class_margin and self.prior is None

    def forward(
        self,
        features: Tensor,
        targets: Tensor,
        head: Head,
        progress: float = 1.0,
        logits: Tensor | None = None,
        *,
        attributes: Tensor | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch; `attributes` (N,) or `log_prior` (N, C) say which prior each sample has."""
        batch = self._check(features, targets, head, progress, logits)
        return self._loss(batch, progress, prior_margin=self._margin_of(batch, attributes, log_prior))

    def adjustment(
        self,
        features: Tensor,
        targets: Tensor,
        head: Head,
        progress: float = 1.0,
        logits: Tensor | None = None,
        *,
        attributes: Tensor | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor:
        batch = self._check(features, targets, head, progress, logits)
        return self._adjustment(batch, progress, prior_margin=self._margin_of(batch, attributes, log_prior))

    def prior_margin(
        self,
        targets: Tensor,
        dtype: torch.dtype = torch.float32,
        attributes: Tensor | None = None,
        log_prior: Tensor | None = None,
    ) -> Tensor | None:
        """log p(c)/p(y) (N, C), zero at the target; None where the loss has no such term, or nothing says p."""
        attributes = self._check_prior(targets, attributes, log_prior)
        if not self.has_class_margin:
            return None
        if log_prior is not None:
            return log_ratio(log_prior, targets, dtype)
        if self.prior is not None:
            return log_ratio(attribute_log_prior(self.prior)[attributes], targets, dtype)
        return None if self.class_counts is None else prior_term(self.class_counts, targets, dtype)

    def _margin_of(self, batch: LossBatch, attributes: Tensor | None, log_prior: Tensor | None) -> Tensor | None:
        dtype = torch.promote_types(batch.weight.dtype, torch.float32)
        if batch.kept is not None:
            attributes = self._rows_of(batch, attributes, "attributes")
            log_prior = self._rows_of(batch, log_prior, "log_prior")
        return self.prior_margin(batch.targets, dtype, attributes, log_prior)

    def _rows_of(self, batch: LossBatch, values: Tensor | None, name: str) -> Tensor | None:
        """Rows of what was given for all samples, those that are ignored too."""
        assert batch.kept is not None
        if values is None:
            return None
        check_tensor(values, name, self.owner)
        if values.dim() == 0 or len(values) != len(batch.kept):
            raise InputError(f"{self.owner} expects {name} of {len(batch.kept)} samples, got {tuple(values.shape)}.")
        return values[batch.kept]

    def _check_counts(self, targets: Tensor) -> None:
        """Left to `prior_margin`, which knows whether the counts are read in this call."""

    def _check_prior(self, targets: Tensor, attributes: Tensor | None, log_prior: Tensor | None) -> Tensor | None:
        if attributes is not None and log_prior is not None:
            raise InputError(f"{self.owner} got both attributes and log_prior: give the one that holds the prior.")
        if self.prior is None and attributes is not None:
            raise InputError(
                f"{self.owner} got attributes without a table of counts: make it with prior=, a (K, C) table."
            )
        if self.prior is not None and attributes is None:
            got = "got log_prior" if log_prior is not None else "got none"
            raise InputError(
                f"{self.owner} was made with prior, a table over {len(self.prior)} attribute values, and needs "
                f"attributes=, one per sample; {got}."
            )
        if log_prior is not None:
            check_float(log_prior, "log_prior", self.owner)
            check_device(log_prior, "log_prior", targets.device, self.owner)
            check_log_prior(log_prior, len(targets), self.num_classes, self.owner)
        if self.prior is None or attributes is None:
            return None
        check_tensor(attributes, "attributes", self.owner)
        check_device(attributes, "attributes", targets.device, self.owner)
        attributes = check_attributes(attributes, len(targets), len(self.prior), self.owner)
        _check_seen(self.prior, targets)
        return attributes


def check_table(prior: Any, num_classes: int, owner: str) -> Tensor:
    try:
        table = torch.as_tensor(prior).to(torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputTypeError(
            f"{owner} expects prior as a table of numbers, got {type(prior).__name__}: {error}."
        ) from error
    if table.dim() != 2 or table.shape[1] != num_classes or len(table) == 0:
        raise InputError(
            f"{owner} expects prior of shape (K, {num_classes}), a row per attribute value and a column per class, got "
            f"{tuple(table.shape)}."
        )
    if not torch.isfinite(table).all() or (table < 0).any() or table.sum() == 0:
        raise InputError(f"{owner} expects prior to hold counts: finite, not negative and not all zero.")
    return table


def check_attributes(attributes: Tensor, num_samples: int, num_values: int, owner: str) -> Tensor:
    """The attributes as int64, as labels are."""
    if attributes.is_floating_point() or attributes.is_complex() or attributes.dtype == torch.bool:
        raise InputTypeError(f"{owner} expects integer attributes, got {attributes.dtype}: use attributes.long().")
    if attributes.shape != (num_samples,):
        raise InputError(f"{owner} expects attributes of shape ({num_samples},), got {tuple(attributes.shape)}.")
    attributes = attributes.long()
    if torch.compiler.is_compiling():  # values are not looked at in a graph
        return attributes
    low, high = torch.stack(torch.aminmax(attributes)).tolist()
    if low < 0 or high >= num_values:
        wrong = low if low < 0 else high
        raise InputError(f"{owner} got attribute {wrong}, outside 0..{num_values - 1}, the rows of its prior.")
    return attributes


def check_log_prior(log_prior: Tensor, num_samples: int, num_classes: int, owner: str) -> None:
    if not log_prior.is_floating_point():
        raise InputTypeError(f"{owner} expects a floating-point log_prior, got {log_prior.dtype}.")
    if log_prior.shape != (num_samples, num_classes):
        shape = (num_samples, num_classes)
        raise InputError(f"{owner} expects log_prior of shape {shape}, got {tuple(log_prior.shape)}.")
    if not torch.compiler.is_compiling() and not torch.isfinite(log_prior).all():
        raise InputError(f"{owner} got a log_prior that is NaN or infinite: a probability of zero has no margin.")


def _check_seen(table: Tensor, targets: Tensor) -> None:
    if torch.compiler.is_compiling():
        return
    missing = table.sum(0)[targets] == 0
    if missing.any():
        raise InputError(
            f"the batch holds class {int(targets[missing][0])}, of which prior has no sample: give the counts of the "
            "training data."
        )
