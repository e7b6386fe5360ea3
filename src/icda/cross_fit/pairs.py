"""Two classes at a time: what twin heads answer, and whether a head that is given their answer serves those it hurts.

A shortcut is a simple function of the features that tells most labels of two classes. Twin heads find it; their answer goes
against the label of the few samples it hurts. If it is a shortcut, those samples still have the features of their class:
a head that is given the answer as a prior, z + log P(y | answer), gets many of them right and loses few others. If their
labels are wrong, there is nothing to be read, and the treatment loses as much as it gains.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from icda.cross_fit.twins import LENGTH, TwinSettings, scaled_to, twin_margins
from icda.linear.balance import rebalance
from icda.linear.cross_fit import cross_fitted_logits
from icda.linear.objective import LossSettings
from icda.linear.problem import Problem

TWINS = 3  # pairs of twin heads with different halves
MAX_ITER, TOL = 50, 1e-3
DECAY = 16e-3  # a thousandth of the mean squared length of the features, which are scaled to 4


@dataclass(frozen=True)
class PairEvidence:
    """What was measured on two classes; shares are of samples that the heads in question have not seen."""

    classes: tuple[int, int]
    samples: int
    agreement: float  # of two pairs of twins, mean over the three ways to take two
    errors: float  # share of labels that a pair of twins contradicts
    against: int  # samples whose label the twins contradict together
    sureness: float  # median margin of the twins where they contradict the label over that elsewhere
    hurt_before: float  # of those against, predicted right by a plain head
    hurt_after: float  # and by one that is given the twins' answer as a prior
    helped_before: float  # the same of all others
    helped_after: float
    error_sureness: float  # median margin of a plain head's errors over that of what it gets right
    plain_errors: float  # share of errors of the plain head
    readability: float  # AUROC, within one answer of the twins, of the labels under the treated heads; 0.5 is none
    readability_error: float  # its standard error, if there were nothing to read

    @property
    def gain(self) -> float:
        """What the treatment gains on those hurt and loses on the others, halved: a change in balanced accuracy."""
        return 0.5 * (self.hurt_after - self.hurt_before) + 0.5 * (self.helped_after - self.helped_before)

    @property
    def disagreement(self) -> float:
        """(1 - agreement) / errors: small where twins agree on what contradicts the labels."""
        return (1 - self.agreement) / max(self.errors, 1 / self.samples)


def measure_pair(features: Tensor, targets: Tensor, classes: tuple[int, int] = (0, 1), seed: int = 0) -> PairEvidence:
    """Evidence on samples of two classes, `targets` 0 or 1; any scale will do."""
    features = scaled_to(features, LENGTH)
    margins = twin_margins(features, targets, TWINS, seed, TwinSettings())
    answers = (margins > 0).long()
    together = margins.mean(1)
    answer = (together > 0).long()
    against = answer != targets
    plain, treated = trial(features, targets, answer, 2, seed)
    right = plain.argmax(1) == targets
    after = treated.argmax(1) == targets
    plain_margin = (plain[:, 1] - plain[:, 0]).abs()
    pairs = list(combinations(range(TWINS), 2))
    return PairEvidence(
        classes=classes,
        samples=len(targets),
        agreement=sum(share(answers[:, i] == answers[:, j]) for i, j in pairs) / len(pairs),
        errors=share(answers != targets[:, None]),
        against=int(against.sum()),
        sureness=ratio_of_medians(together.abs()[against], together.abs()[~against]),
        hurt_before=share(right[against]),
        hurt_after=share(after[against]),
        helped_before=share(right[~against]),
        helped_after=share(after[~against]),
        error_sureness=ratio_of_medians(plain_margin[~right], plain_margin[right]),
        plain_errors=share(~right),
        readability=(readable := within_answers(treated[:, 1] - treated[:, 0], targets, answer))[0],
        readability_error=readable[1],
    )


def trial(features: Tensor, targets: Tensor, answers: Tensor, num_classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Out-of-fold logits (N, C) of plain heads, and of heads trained with the prior log P(y | answer)."""
    ones = features.new_ones(len(targets))
    counts = torch.bincount(targets, minlength=num_classes).double()
    problem = Problem(features, targets, num_classes, ones, ones, counts, DECAY)
    plain = _cross_fit(problem, LossSettings("ce"), targets, seed)
    informed = rebalance(problem, answers, "prior")
    return plain, _cross_fit(informed, LossSettings("la"), targets * num_classes + answers, seed)


def within_answers(scores: Tensor, targets: Tensor, answers: Tensor) -> tuple[float, float]:
    """AUROC of `scores` for the label among samples of one answer, mean over answers by their rarer label, and its error.

    The error is that of the Mann-Whitney statistic without a difference: sqrt((a + b + 1) / (12 a b)).
    """
    areas, masses, variances = [], [], []
    for answer in (0, 1):
        here = answers == answer
        ones, zeros = scores[here & (targets == 1)], scores[here & (targets == 0)]
        a, b = len(ones), len(zeros)
        if not a or not b:
            continue
        ranks = torch.cat([ones, zeros]).argsort().argsort().double() + 1
        areas.append(float((ranks[:a].sum() - a * (a + 1) / 2) / (a * b)))
        masses.append(min(a, b))
        variances.append((a + b + 1) / (12 * a * b))
    if not areas:
        return 0.5, 0.5
    total = sum(masses)
    area = sum(m * x for m, x in zip(masses, areas, strict=True)) / total
    error = sum((m / total) ** 2 * v for m, v in zip(masses, variances, strict=True)) ** 0.5
    return area, error


def share(values: Tensor) -> float:
    """Mean of truth values; 1 of none, so that an empty group counts as served."""
    return float(values.double().mean()) if values.numel() else 1.0


def ratio_of_medians(first: Tensor, second: Tensor) -> float:
    """0 where either is empty."""
    if not len(first) or not len(second):
        return 0.0
    return float(first.median() / second.median().clamp(min=1e-12))


def _cross_fit(problem: Problem, settings: LossSettings, strata: Tensor, seed: int) -> Tensor:
    return cross_fitted_logits(problem, settings, strata, folds=5, seed=seed, max_iter=MAX_ITER, tol=TOL)
