"""What a linear head is fitted to."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from icda.linear.rows import Rows
from icda.strength import Strength


@dataclass(frozen=True)
class Problem:
    """Everything about a fit that does not change from iteration to iteration.

    A prior has one place. `class_counts` are what they say, and their prior is added by the losses that have one (LA and
    ICDA). `log_prior` replaces it by a prior that each sample brings, which every loss adds. `margins` are no prior: they
    are added to all samples alike, beside either.
    """

    features: Rows  # in memory, or on disk and read a chunk at a time
    targets: Tensor
    num_classes: int
    weights: Tensor  # how much each sample's loss counts
    statistics_weights: Tensor  # how much each sample counts in class means and covariances
    class_counts: Tensor
    decay: float  # half of it times |W|^2 is added to the mean loss
    strength: Strength | None = None  # fixed strengths; None reads them off the head's angles
    log_prior: Tensor | None = None  # (N, C), up to a constant per sample
    margins: Tensor | None = None  # (C,)
    covariance_mixing: Tensor | None = None  # (C, C): class j is augmented with sum_k mixing_{j,k} Sigma_k

    @classmethod
    def of(
        cls, features: Rows, targets: Tensor, num_classes: int, C: float, weights: np.ndarray | None = None
    ) -> Problem:
        """A fit with scikit-learn's inverse regularisation C; `weights` (N,) say how many samples each counts as.

        >>> problem = Problem.of(torch.randn(4, 2), torch.tensor([0, 0, 1, 1]), 2, C=0.5)
        >>> problem.class_counts.tolist(), problem.decay
        ([2.0, 2.0], 0.5)
        """
        weights = np.ones(len(targets)) if weights is None else weights
        mass = torch.from_numpy(weights / weights.mean()).to(features.dtype)
        counts = torch.bincount(targets, mass.double(), minlength=num_classes)
        return cls(features, targets, num_classes, mass, mass, counts, 1 / (C * float(weights.sum())))

    @property
    def prior_counts(self) -> Tensor | None:
        """The counts whose prior a loss adds: None where samples bring a prior of their own."""
        return self.class_counts if self.log_prior is None else None

    @property
    def added(self) -> Tensor | None:
        """What training adds to the logits whatever the loss is; it broadcasts to (N, C)."""
        if self.log_prior is None or self.margins is None:
            return self.margins if self.log_prior is None else self.log_prior
        return self.margins + self.log_prior

    def rows(self, chosen: Tensor) -> Problem:
        """The problem restricted to some samples, by a mask or by their numbers.

        >>> problem = Problem.of(torch.randn(4, 2), torch.tensor([0, 0, 1, 1]), 2, C=1.0)
        >>> problem.rows(torch.tensor([0, 1, 2])).class_counts.tolist()
        [2.0, 1.0]
        """
        return replace(self.rows_but_features(chosen), features=self.features[chosen])

    def rows_but_features(self, chosen: Tensor) -> Problem:
        """As `rows`, with the features of all samples left in place: for those who skip the others themselves."""
        targets, weights = self.targets[chosen], self.weights[chosen]
        return replace(
            self,
            targets=targets,
            weights=weights,
            statistics_weights=self.statistics_weights[chosen],
            class_counts=torch.bincount(targets, weights.double(), minlength=self.num_classes),
            strength=None if self.strength is None else Strength(*(part[chosen] for part in self.strength)),
            log_prior=None if self.log_prior is None else self.log_prior[chosen],
        )
