"""Let rare kinds of samples count: in the loss, in the class statistics, or in the prior."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from icda.linear.solver import Problem

Through = Literal["weights", "statistics", "prior"]
UNSEEN = 0.5  # what a pair of class and attribute without samples counts as in the prior


def balance_weights(labels: Tensor) -> Tensor:
    """Weights that give every label the same mass, mean one.

    >>> balance_weights(torch.tensor([0, 0, 0, 1])).tolist()
    [0.6666666666666666, 0.6666666666666666, 0.6666666666666666, 2.0]
    """
    counts = torch.bincount(labels).double()
    return len(labels) / ((counts > 0).sum() * counts)[labels]


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
        return reweigh(problem, balance_weights(dense))
    if through == "statistics":
        weights = problem.statistics_weights * balance_weights(dense).to(problem.weights)
        return replace(problem, statistics_weights=weights)
    counts = torch.zeros(int(attributes.max()) + 1, problem.num_classes, dtype=torch.float64)
    counts.index_put_((attributes, problem.targets), problem.weights.double(), accumulate=True)
    prior = counts.clamp(min=UNSEEN).log().to(problem.weights)
    return replace(problem, offsets=prior[attributes], class_counts=torch.ones(problem.num_classes))
