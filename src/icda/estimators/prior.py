"""The prior of a fit's samples, as `fit` gets it: an attribute of each, or log probabilities."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icda.errors import InputError
from icda.heads.balance import rebalance
from icda.heads.problem import Problem


@dataclass(frozen=True)
class GivenPrior:
    """At most one of `attributes` (N,), of any values, and `log_prior` (N, C)."""

    attributes: np.ndarray | None = None
    log_prior: np.ndarray | None = None

    @classmethod
    def checked(
        cls, attributes: Any, log_prior: Any, num_samples: int, num_classes: int, owner: str
    ) -> GivenPrior | None:
        """What was given, or None for nothing."""
        if attributes is None and log_prior is None:
            return None
        if attributes is not None and log_prior is not None:
            raise InputError(f"{owner} got both attributes and log_prior: give the one that holds the prior.")
        if attributes is not None:
            if np.shape(attributes) != (num_samples,):
                raise InputError(
                    f"attributes must have one entry per sample, expected shape ({num_samples},), got "
                    f"{np.shape(attributes)}."
                )
            return cls(attributes=np.asarray(attributes))
        log_prior = np.asarray(log_prior, dtype=np.float64)
        if log_prior.shape != (num_samples, num_classes):
            raise InputError(
                "log_prior must have one row per sample and one column per class, expected shape "
                f"{(num_samples, num_classes)}, got {log_prior.shape}."
            )
        if not np.isfinite(log_prior).all():
            raise InputError("log_prior holds NaN or infinite values: a probability of zero has no margin.")
        return cls(log_prior=log_prior)

    def rows(self, chosen: np.ndarray) -> GivenPrior:
        return GivenPrior(*(None if part is None else part[chosen] for part in (self.attributes, self.log_prior)))

    @property
    def codes(self) -> Tensor | None:
        """The attributes as their places among the sorted values."""
        return None if self.attributes is None else torch.from_numpy(np.unique(self.attributes, return_inverse=True)[1])

    def put_into(self, problem: Problem, unit: float) -> Problem:
        """The problem with this prior; `unit` is what a sample of weight one has in its weights."""
        if self.log_prior is not None:
            return replace(problem, log_prior=torch.from_numpy(self.log_prior).to(problem.weights))
        assert self.codes is not None
        return rebalance(problem, self.codes, "prior", unit)
