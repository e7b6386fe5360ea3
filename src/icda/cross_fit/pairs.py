"""Two classes at a time: what twin heads answer, and whether a head that is given their answer serves those it hurts.

A shortcut is a simple function of the features that tells most labels of two classes. Twin heads find it; their answer goes
against the label of the few samples it hurts. If it is a shortcut, those samples still have the features of their class:
a head that is given the answer as a prior, z + log P(y | answer), gets many of them right and loses few others. If their
labels are wrong, there is nothing to be read, and the treatment loses as much as it gains.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor

from icda.cross_fit.twins import LENGTH, even_cuts, scaled_to, twin_margins
from icda.heads.cross_fit import balanced_share, cross_fitted_logits
from icda.heads.problem import LossSettings, Problem, rebalance

TWINS = 3  # answers that are compared
EACH = 3  # pairs of twin heads with different halves behind each answer: few samples make one pair's answer a draw
PAIR_RATIO = 2  # of a larger class, so many times the smaller train twins
PAIRS_OF_TWINS = tuple(combinations(range(TWINS), 2))
MAX_ITER, TOL = 50, 1e-3
FEW_AGAINST = 6.0  # a gain seen on n samples counts n / (n + this)
DECAY = 16e-3  # a thousandth of the mean squared length of the features, which are scaled to 4


@dataclass(frozen=True)
class PairEvidence:
    """What was measured on two classes by heads that have not seen the samples in question."""

    classes: tuple[int, int]
    samples: int
    agreement: float  # of two answers of twins, mean over the three ways to take two
    errors: float  # share of labels that an answer of twins contradicts
    against: int  # samples whose label the twins contradict together
    against_share: float  # their share
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
    def shrunk_gain(self) -> float:
        """The gain, smaller the fewer samples it was seen on."""
        return self.gain * self.against / (self.against + FEW_AGAINST)

    @property
    def disagreement(self) -> float:
        """(1 - agreement) / errors: small where twins agree on what contradicts the labels."""
        return (1 - self.agreement) / max(self.errors, 1 / self.samples)


def measure_pair(
    features: Tensor, targets: Tensor, classes: tuple[int, int] = (0, 1), seed: int = 0, *, uneven: bool = False
) -> PairEvidence:
    """Evidence on samples of two classes, `targets` 0 or 1; any scale will do.

    Of classes of very `uneven` sizes only some samples train each pair of twins (`even_cuts`). Then both classes count the
    same in every share and median, and the plain heads have the class prior taken off: else all that is rare would look
    like something that a shortcut hurts.
    """
    features = scaled_to(features, LENGTH)
    trained = even_cuts(targets, TWINS * EACH, PAIR_RATIO, seed) if uneven else None
    margins = twin_margins(features, targets, TWINS * EACH, seed, trained=trained).view(-1, TWINS, EACH).mean(2)
    answers = (margins > 0).long()
    together = margins.mean(1)
    answer = (together > 0).long()
    against = answer != targets
    plain, treated = trial(features, targets, answer, 2, seed, "la" if uneven else "ce")
    right = plain.argmax(1) == targets
    after = treated.argmax(1) == targets
    plain_margin = (plain[:, 1] - plain[:, 0]).abs()
    readable = within_answers(treated, targets, answer)
    counted = Counted(targets, evenly=uneven)
    return PairEvidence(
        classes=classes,
        samples=len(targets),
        agreement=sum(counted.share(answers[:, i] == answers[:, j]) for i, j in PAIRS_OF_TWINS) / len(PAIRS_OF_TWINS),
        errors=sum(counted.share(answers[:, k] != targets) for k in range(TWINS)) / TWINS,
        against=int(against.sum()),
        against_share=counted.share(against),
        sureness=counted.ratio_of_medians(together.abs(), against),
        hurt_before=counted.share(right, against),
        hurt_after=counted.share(after, against),
        helped_before=counted.share(right, ~against),
        helped_after=counted.share(after, ~against),
        error_sureness=counted.ratio_of_medians(plain_margin, ~right),
        plain_errors=counted.share(~right),
        readability=readable[0],
        readability_error=readable[1],
    )


class Counted:
    """Shares and medians in which every sample counts the same, or, `evenly`, every class.

    >>> Counted(torch.tensor([0, 0, 0, 1]), evenly=True).share(torch.tensor([True, True, True, False]))
    0.5
    """

    def __init__(self, targets: Tensor, *, evenly: bool) -> None:
        masses = 1 / torch.bincount(targets).clamp(min=1).double()
        self.weights = masses[targets] if evenly else torch.ones(len(targets), dtype=torch.float64)

    def share(self, values: Tensor, chosen: Tensor | None = None) -> float:
        """Mean of truth values, of those chosen; 1 of none, so that an empty group counts as served."""
        weights = self.weights if chosen is None else self.weights * chosen
        mass = float(weights.sum())
        return float((weights * values).sum()) / mass if mass else 1.0

    def median(self, values: Tensor, chosen: Tensor) -> float:
        """The value with half of the weight at or below it; 0 of none."""
        values, weights = values[chosen], self.weights[chosen]
        if not len(values):
            return 0.0
        order = values.argsort()
        below = weights[order].cumsum(0)
        return float(values[order][int((below < 0.5 * below[-1] * (1 - 1e-12)).sum())])

    def ratio_of_medians(self, values: Tensor, chosen: Tensor) -> float:
        """The median of those chosen over that of all others; 0 where either is empty."""
        if not chosen.any() or chosen.all():
            return 0.0
        return self.median(values, chosen) / max(self.median(values, ~chosen), 1e-12)


def trial(
    features: Tensor,
    targets: Tensor,
    answers: Tensor,
    num_classes: int,
    seed: int,
    plain_loss: Literal["ce", "la"] = "ce",
) -> tuple[Tensor, Tensor]:
    """Out-of-fold logits (N, C) of plain heads, and of heads trained with the prior log P(y | answer)."""
    ones = features.new_ones(len(targets))
    counts = torch.bincount(targets, minlength=num_classes).double()
    problem = Problem(features, targets, num_classes, ones, ones, counts, DECAY)
    plain = quick_logits(problem, LossSettings(plain_loss), targets, seed)
    informed = rebalance(problem, answers, "prior")
    return plain, quick_logits(informed, LossSettings("la"), targets * num_classes + answers, seed)


def within_answers(logits: Tensor, targets: Tensor, answers: Tensor, *, confirmed: bool = False) -> tuple[float, float]:
    """How well labels are read off logits (N, C) among samples of one answer: an AUROC, and its standard error.

    Of the samples with answer a, those labelled c are told from those labelled a by z_c - z_a; the mean over all such
    pairs, by the rarer label. The error is that of the Mann-Whitney statistic without a difference,
    sqrt((m + n + 1) / (12 m n)). Labels that are wrong by their class alone cannot be read: 0.5.

    With `confirmed` those labelled c are others, whose answer is c, too: how well the same logits tell the same labels
    where nobody contradicts them.
    """
    areas, masses, variances = [], [], []
    for answer, label in torch.stack([answers, targets], 1)[answers != targets].unique(dim=0).tolist():
        here = answers == answer
        scores, against = logits[:, label] - logits[:, answer], here & (targets == label)
        ones = scores[(answers == label) & (targets == label) if confirmed else against]
        zeros = scores[here & (targets == answer)]
        m, n = len(ones), len(zeros)
        if not (m and n):
            continue
        ranks = torch.cat([ones, zeros]).argsort().argsort().double() + 1
        areas.append(float((ranks[:m].sum() - m * (m + 1) / 2) / (m * n)))
        masses.append(min(int(against.sum()), n))
        variances.append((m + n + 1) / (12 * m * n))
    if not areas:
        return 0.5, 0.5
    total = sum(masses)
    area = sum(mass * x for mass, x in zip(masses, areas, strict=True)) / total
    error = sum((mass / total) ** 2 * v for mass, v in zip(masses, variances, strict=True)) ** 0.5
    return area, error


def share(values: Tensor) -> float:
    """Mean of truth values; 1 of none, so that an empty group counts as served."""
    return float(values.double().mean()) if values.numel() else 1.0


def skill(answers: Tensor, targets: Tensor, num_classes: int) -> float:
    """Balanced accuracy over the classes that are there, from guessing, 0, to perfection, 1.

    >>> skill(torch.tensor([0, 0, 1, 0]), torch.tensor([0, 0, 1, 1]), 2)
    0.5
    """
    return (balanced_share(answers == targets, targets) - 1 / num_classes) / (1 - 1 / num_classes)


def ratio_of_medians(first: Tensor, second: Tensor) -> float:
    """0 where either is empty."""
    if not len(first) or not len(second):
        return 0.0
    return float(first.median() / second.median().clamp(min=1e-12))


def quick_logits(problem: Problem, settings: LossSettings, strata: Tensor, seed: int) -> Tensor:
    """Out-of-fold logits (N, C), as exact as the questions about shares and medians need them."""
    return cross_fitted_logits(problem, settings, strata, folds=5, seed=seed, max_iter=MAX_ITER, tol=TOL)
