"""What a linear head is fitted to, and how rare kinds of samples are let count: in loss, statistics or prior."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from icda.errors import InputError
from icda.functional.confusion import count_confusions
from icda.functional.prior import conditional_log_prior, joint_counts
from icda.functional.strength import Strength, direct_strength
from icda.heads.rows import Rows, row_chunks, times

if TYPE_CHECKING:
    from icda.heads.objective import AugmentedObjective, FoldObjective
    from icda.heads.solver import LinearHead

SAMPLED = 4  # rows per feature that a metric is estimated from: those of blocks travel
LossName = Literal["ce", "la", "isda", "risda", "icda"]
AUGMENTED = ("isda", "risda", "icda")  # losses that need covariances of the classes
Through = Literal["weights", "statistics", "prior"]


@dataclass(frozen=True)
class LossSettings:
    """Which loss, and how strong its terms are; `lam` is lambda at the end of training."""

    name: LossName = "icda"
    lam: float = 0.5
    beta: float = 0.1
    mean_strength: float = 1.0  # RISDA's a


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
    unit: float = 1.0  # what a sample of weight one has in `weights`: the prior of pairs without samples asks for it

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
        decay, unit = 1 / (C * float(weights.sum())), 1 / float(weights.mean())
        return cls(features, targets, num_classes, mass, mass, counts, decay, unit=unit)

    @classmethod
    def plain(cls, features: Rows, targets: Tensor, num_classes: int, decay: float) -> Problem:
        """Every sample counts the same, with the weight decay as it is."""
        return cls.of(features, targets, num_classes, 1 / (decay * len(targets)))

    @property
    def products(self) -> int:
        """How many numbers one evaluation multiplies."""
        return self.features.shape[0] * self.features.shape[1] * self.num_classes

    @property
    def added(self) -> Tensor | None:
        """What training adds to the logits of each sample (N, C), besides what it adds to all alike."""
        if self.log_prior is None or self.margins is None:
            return self.log_prior
        return self.margins + self.log_prior

    def constants(self, name: LossName) -> Tensor:
        """What training adds to the logits of all samples (C,): the prior of the classes, and margins."""
        constant = torch.zeros(self.num_classes, dtype=torch.float64)
        if self.log_prior is not None:
            return constant.to(self.features.dtype)
        if name in ("la", "icda"):
            present = torch.bincount(self.targets, minlength=self.num_classes) > 0
            if (present & (self.class_counts == 0)).any():
                raise InputError("a class has samples and a count of zero: give the counts of the training labels.")
            constant = log_shares(self.class_counts)
        if self.margins is not None:
            constant = constant + self.margins.double()
        return constant.to(self.features.dtype)

    def rows(self, chosen: Tensor) -> Problem:
        """The problem restricted to some samples, by a mask or by their numbers.

        >>> problem = Problem.of(torch.randn(4, 2), torch.tensor([0, 0, 1, 1]), 2, C=1.0)
        >>> problem.rows(torch.tensor([0, 1, 2])).class_counts.tolist()
        [2.0, 1.0]
        """
        targets, weights = self.targets[chosen], self.weights[chosen]
        return replace(
            self,
            features=self.features[chosen],
            targets=targets,
            weights=weights,
            statistics_weights=self.statistics_weights[chosen],
            class_counts=torch.bincount(targets, weights.double(), minlength=self.num_classes),
            strength=None if self.strength is None else Strength(*(part[chosen] for part in self.strength)),
            log_prior=None if self.log_prior is None else self.log_prior[chosen],
        )

    def objective(self, settings: LossSettings) -> AugmentedObjective | FoldObjective:
        """The loss as a function of weight and bias."""
        from icda.heads.objective import AugmentedObjective, FoldObjective

        if settings.name in AUGMENTED:
            return AugmentedObjective(self, settings)
        return FoldObjective(self, settings, torch.ones(1, len(self.targets), dtype=torch.bool))

    def angles(self, head: LinearHead) -> Strength:
        """The paper's strengths of all samples under a head."""
        shape, dtype = (len(self.targets), self.num_classes), self.features.dtype
        strength = Strength(torch.empty(shape, dtype=dtype), torch.empty(shape[0], dtype=dtype))
        for span, block in row_chunks(self.features):
            strength.per_class[span], strength.per_sample[span] = direct_strength(
                block, self.targets[span], head.weight
            )
        return strength

    def confusions(self, head: LinearHead) -> Tensor:
        """How often the head takes each class for each other (C, C)."""
        predictions = times(self.features, head.weight).add_(head.bias).argmax(1)
        return count_confusions(predictions, self.targets, self.num_classes, self.weights)

    def sampled_rows(self) -> Tensor:
        """Some rows of the features, from which the curvature is estimated."""
        count, width = self.features.shape
        chosen = torch.arange(0, count, max(1, count // (SAMPLED * width)))
        if isinstance(self.features, Tensor):
            return self.features[chosen]
        return torch.cat([block.clone() for _, block in self.features[chosen.numpy()].chunks()])


def log_shares(counts: Tensor) -> Tensor:
    """The log of counts (C,), up to a constant: zero for the largest."""
    return (counts.double() / counts.max()).log()


def balance_weights(labels: Tensor, masses: Tensor | None = None) -> Tensor:
    """Factors that give every label the same mass and leave the mass of all samples as it is.

    `masses` (N,) say how much each sample counts already, so that a mass of 5 is five samples; by default each is one. A
    label whose samples count nothing gets factors of zero.

    >>> balance_weights(torch.tensor([0, 0, 0, 1])).tolist()
    [0.6666666666666666, 0.6666666666666666, 0.6666666666666666, 2.0]
    >>> balance_weights(torch.tensor([0, 1]), torch.tensor([3.0, 1.0])).tolist()
    [0.6666666666666666, 2.0]
    """
    masses = torch.ones_like(labels, dtype=torch.float64) if masses is None else masses.double()
    counts = torch.bincount(labels, masses)
    present = counts > 0
    return torch.where(present, float(counts.sum()) / (present.sum() * counts), 0.0)[labels]


def reweigh(problem: Problem, weights: Tensor) -> Problem:
    """The problem with its samples counted `weights` times, in loss, statistics and prior."""
    weights = problem.weights * weights.to(problem.weights)
    counts = torch.bincount(problem.targets, weights.double(), minlength=problem.num_classes)
    return replace(problem, weights=weights, statistics_weights=weights, class_counts=counts)


def rebalance(problem: Problem, attributes: Tensor, through: Through = "weights") -> Problem:
    """The problem with every (class, attribute) balanced.

    "weights" gives each pair the same mass everywhere. "statistics" does so in class means and covariances only.
    "prior" leaves the weights alone and replaces the prior of classes by that of classes given the attribute,
    z_c + log pi(c | a_i): the logit adjustment of a world in which the attribute tells the class.
    """
    attributes = torch.unique(attributes, return_inverse=True)[1]
    pairs = problem.targets * (int(attributes.max()) + 1) + attributes
    dense = torch.unique(pairs, return_inverse=True)[1]
    if through == "weights":
        return reweigh(problem, balance_weights(dense, problem.weights))
    if through == "statistics":
        factors = balance_weights(dense, problem.statistics_weights).to(problem.weights)
        return replace(problem, statistics_weights=problem.statistics_weights * factors)
    return with_prior(problem, attributes)


def with_prior(problem: Problem, attributes: Tensor, strength: float = 1.0) -> Problem:
    """The prior log P(y | attribute)^strength P(y)^(1 - strength): all of it, or only as much as the evidence bears."""
    number = int(attributes.max()) + 1
    counts = joint_counts(attributes, problem.targets, number, problem.num_classes, problem.weights)
    prior = conditional_log_prior(counts, 0.5 * problem.unit * float(problem.weights.mean()), strength)
    return replace(problem, log_prior=prior.to(problem.weights)[attributes])
