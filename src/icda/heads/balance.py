"""Let rare kinds of samples count: in the loss, in the class statistics, or in the prior."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from icda.functional.prior import conditional_log_prior, joint_counts, tempered
from icda.heads.problem import Problem

Through = Literal["weights", "statistics", "prior"]


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


def rebalance(problem: Problem, attributes: Tensor, through: Through = "weights", unit: float = 1.0) -> Problem:
    """The problem with every (class, attribute) balanced.

    "weights" gives each pair the same mass everywhere. "statistics" does so in class means and covariances only.
    "prior" leaves the weights alone and replaces the prior of classes by that of classes given the attribute,
    z_c + log pi(c | a_i): the logit adjustment of a world in which the attribute tells the class. `unit` is what a sample
    of weight one has in `problem.weights`; only the prior of pairs without samples asks for it.
    """
    attributes = torch.unique(attributes, return_inverse=True)[1]
    pairs = problem.targets * (int(attributes.max()) + 1) + attributes
    dense = torch.unique(pairs, return_inverse=True)[1]
    if through == "weights":
        return reweigh(problem, balance_weights(dense, problem.weights))
    if through == "statistics":
        factors = balance_weights(dense, problem.statistics_weights).to(problem.weights)
        return replace(problem, statistics_weights=problem.statistics_weights * factors)
    return with_prior(problem, attributes, unit=unit)


def with_prior(problem: Problem, attributes: Tensor, strength: float = 1.0, unit: float = 1.0) -> Problem:
    """The prior log P(y | attribute)^strength P(y)^(1 - strength): all of it, or only as much as the evidence bears.

    `unit` is what a sample of weight one has in `problem.weights`, where those are one on average.
    """
    number = int(attributes.max()) + 1
    counts = joint_counts(attributes, problem.targets, number, problem.num_classes, problem.weights)
    prior = conditional_log_prior(counts, 0.5 * unit * float(problem.weights.mean()))
    if strength < 1:
        prior = tempered(prior, torch.log_softmax(problem.class_counts.double().log(), 0), strength)
    return replace(problem, log_prior=prior.to(problem.weights)[attributes])
