"""The rule book: limits on what cross-fitted heads and networks show, and the words in which the outcome is given.

`icda.auditing` judges heads by it, `icda.cross_fit.network_verdicts` networks. The limits were looked for on the cases of
`icda bench verdicts`, all sets but one at a time, and judged on that one; docs/evidence/verdicts.md shows the outcome. No
rule knows a data set: all are about shares and ratios that mean something.
"""

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from icda.cross_fit.flatness import Flatness

Answer = Literal["yes", "no", "cannot tell"]
YES, NO = 0.6, 0.4  # chance of a trouble from which we say yes, and up to which we say no


@dataclass(frozen=True)
class Limit:
    """A soft limit: the chance is one half at `at` and about 0.88 one `width` above it."""

    at: float
    width: float

    def chance(self, value: float) -> float:
        """Logistic in (value - at).

        >>> Limit(0.5, 0.1).chance(0.5), round(Limit(0.5, 0.1).chance(0.6), 2)
        (0.5, 0.88)
        """
        return 1 / (1 + math.exp(min(max(-2 * (value - self.at) / self.width, -50.0), 50.0)))


@dataclass(frozen=True)
class Limits:
    """Every limit of the rules; `icda_bench.studies.verdicts.judge` looks for them on all sets but one at a time."""

    # A shortcut between two classes. All must hold.
    sureness: Limit = Limit(1.35, 0.15)  # twins' margin where they contradict labels, over what overlap would give
    agreement: Limit = Limit(0.96, 0.01)  # of two answers of twins: below, what they follow is not clear-cut
    disagreement: Limit = Limit(0.60, 0.08)  # of twins per contradicted label: above, they follow no clear function
    followed: Limit = Limit(
        0.80, 0.06
    )  # of those contradicted, right by a plain head: above, it follows something else
    contradicted: Limit = Limit(0.25, 0.04)  # share of labels: above, the answer tells too few to be a shortcut
    served: Limit = Limit(0.40, 0.04)  # of those contradicted, right by the treated head: below, nothing is to be read
    gain: Limit = Limit(0.025, 0.015)  # of the trial, on those hurt less on the others: noise lies below
    counted: Limit = Limit(11.0, 3.0)  # samples contradicted: fewer are an anecdote, of which nothing can be told
    # With wrong labels around, nothing is gained on those. Twins then agree on the truth as well as on a shortcut; what
    # tells them apart is whether labels can still be read where the twins contradict them. Two classes only.
    noisy_agreement: Limit = Limit(0.985, 0.004)
    noisy_sureness: Limit = Limit(0.85, 0.06)
    noisy_followed: Limit = Limit(0.25, 0.08)
    noisy_read: Limit = Limit(3.0, 0.7)  # standard errors above chance; fewer do where twins agree on nearly all:
    sharp_agreement: Limit = Limit(0.9975, 0.0015)
    sharp_bonus: float = 2.5
    # Wrong labels. How flat errors lie, their sureness plus their share among the surest: overlap explains the more of it
    # the harder the data, (skill, what is needed), linear between. And errors among the surest must not be too rare.
    flatness: tuple[tuple[float, float], ...] = ((0.10, 1.55), (0.25, 1.40), (0.45, 1.07), (0.60, 0.90), (0.75, 0.83))
    flatness_width: float = 0.10
    sure_errors: Limit = Limit(0.035, 0.012)


LIMITS = Limits()
SIDED_SKILL = 0.2  # below it, the errors of one prediction may be flat because its class is hardly told apart
SIDED_SHIFT = 0.1  # what the flattest of several predictions must have more than all together
# How often a trouble was there in cases of `icda bench verdicts` with such a chance by the rules, linear between. Of those
# cases four in ten have it: where nothing is seen, a shortcut is still there in one of five.
FREQUENCY: dict[str, tuple[tuple[float, float], ...]] = {
    "shortcut": (
        (0.0, 0.2),
        (0.02, 0.3),
        (0.1, 0.38),
        (0.2, 0.42),
        (0.55, 0.52),
        (0.585, 0.6),
        (0.65, 0.8),
        (0.85, 0.88),
        (0.93, 0.97),
        (1.0, 0.98),
    ),
    "label_noise": ((0.0, 0.01), (0.01, 0.1), (0.1, 0.18), (0.4, 0.4), (0.6, 0.6), (0.9, 0.8), (1.0, 0.88)),
}
TAIL_RATIO = (4.0, 8.0)  # largest class over smallest: no up to the first, yes from the second


@dataclass(frozen=True)
class Verdict:
    """`answer` is "yes", "no" or "cannot tell"; `confidence` (0.5 to 1) is how often the likelier of yes and no is right.

    For a shortcut and wrong labels that is a frequency among the cases of `icda bench verdicts`, for the others a score.
    `chance` (0 to 1) is the same of "yes" alone: it says which of the two is likelier where the answer is "cannot tell". It
    is None where nothing could be measured. `reasons` are sentences.
    """

    answer: Answer
    confidence: float
    reasons: list[str]
    chance: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def answered(chance: float, reasons: list[str]) -> Verdict:
    """The answer that a chance between 0 and 1 stands for."""
    answer: Answer = "yes" if chance >= YES else "no" if chance <= NO else "cannot tell"
    return Verdict(answer, round(max(chance, 1 - chance), 3), reasons, round(chance, 3))


def frequency(kind: str, chance: float) -> float:
    """How often the trouble is there, given the chance that the rules give it.

    >>> frequency("shortcut", 0.0), frequency("label_noise", 1.0)
    (0.2, 0.88)
    """
    places, shares = zip(*FREQUENCY[kind], strict=True)
    return float(np.interp(chance, places, shares))


def excess_sureness(sureness: float, share: float) -> float:
    """The sureness of a share of errors over that of as many errors between two Gaussians that overlap: 1 is overlap."""
    return sureness / overlap_sureness(min(max(share, 0.005), 0.49))


def overlap_sureness(errors: float) -> float:
    """Median margin of errors over that of what is right, for z ~ N(d, 1) with P(z < 0) = `errors`.

    >>> round(overlap_sureness(0.05), 2), round(overlap_sureness(0.3), 2)
    (0.18, 0.56)
    """
    quantile = NormalDist().inv_cdf
    distance = -quantile(errors)
    return -(distance + quantile(errors / 2)) / (distance + quantile((1 + errors) / 2))


def noise_chance(skill: float, overall: Flatness, sided: Flatness, limits: Limits = LIMITS) -> float:
    """Errors that are as sure as what is right, and as frequent among the surest, are wrong labels.

    `skill` is the balanced accuracy on a scale from guessing, 0, to perfection, 1. Asked of all predictions, and, unless
    classes are hard to tell apart, of those as one class, with a higher limit.
    """
    needed = needed_flatness(skill, limits)
    chance = _flat_chance(overall, needed, limits)
    if skill < SIDED_SKILL:
        return chance
    return max(chance, _flat_chance(sided, needed + SIDED_SHIFT, limits))


def needed_flatness(skill: float, limits: Limits = LIMITS) -> float:
    """How flat errors must lie before labels are called wrong: the harder the data, the flatter."""
    skills, wanted = zip(*limits.flatness, strict=True)
    return float(np.interp(skill, skills, wanted))


def _flat_chance(found: Flatness, needed: float, limits: Limits) -> float:
    flat = Limit(needed, limits.flatness_width).chance(found.error_sureness + found.sure_errors)
    return min(flat, limits.sure_errors.chance(found.sure_errors * found.errors))


def tail_verdict(counts: list[int], predicted_ratio: float = 0.0) -> Verdict:
    """Whether class sizes are a long tail. Where labels are wrong, `predicted_ratio` is that of held-out answers."""
    ratio, (low, high) = max(counts) / max(min(counts), 1), TAIL_RATIO
    reasons = [
        f"The largest class has {ratio:.3g} times the samples of the smallest ({max(counts)} and {min(counts)}; a long "
        f"tail: from {high:g} on)."
    ]
    if predicted_ratio > ratio > 2:
        # Wrong labels go from large classes to small ones: what is answered shows the sizes behind them.
        reasons.append(f"By what heads say, wrong labels left out, it has {predicted_ratio:.3g} times as many.")
        ratio = (ratio * predicted_ratio**2) ** (1 / 3)
    place = (math.log(ratio) - math.log(low)) / (math.log(high) - math.log(low))
    return answered(min(max(NO + (YES - NO) * place, 0.02), 0.98), reasons)


def per_cent(share: float) -> str:
    return f"{100 * share:.1f} %"
