"""One answer per kind of trouble, each with its own evidence, a confidence and the reasons in sentences.

The limits below were looked for on the cases of `icda bench verdicts`, all sets but one at a time, and judged on that one;
docs/audit.md shows the outcome. No rule knows a data set: all are about shares and ratios that mean something.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from icda.auditing.evidence import Evidence, Flatness
from icda.cross_fit.pairs import PairEvidence

Answer = Literal["yes", "no", "cannot tell"]
KINDS = ("shortcut", "label_noise", "long_tail", "overlap", "uninformative")
TOO_FEW = 40  # samples below which nothing but class sizes is judged
HARD_SKILL, CLEARLY_FLAT = 0.75, 0.2  # below this skill, errors must lie so much flatter before labels are called wrong
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
    """Every limit of the rules; `icda_bench.studies.verdicts.fit` looks for them on all sets but one at a time."""

    # A shortcut between two classes. All must hold.
    sureness: Limit = Limit(1.35, 0.15)  # twins' margin where they contradict labels, over what overlap would give
    agreement: Limit = Limit(
        0.96, 0.01
    )  # of two answers of twins on all samples: below, what they follow is not clear-cut
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
    flatness: tuple[tuple[float, float], ...] = (
        (0.10, 1.55),
        (0.25, 1.40),
        (0.45, 1.07),
        (0.60, 0.90),
        (0.75, 0.83),
    )
    flatness_width: float = 0.10
    sure_errors: Limit = Limit(0.035, 0.012)


LIMITS = Limits()
SIDED_SKILL = 0.2  # below it, the errors of one prediction may be flat because its class is hardly told apart
SIDED_SHIFT = 0.1  # what the flattest of several predictions must have more than all together
MOST_LOST = 0.03  # accuracy that the sketch may lose before "no" becomes "cannot tell"
FEW_AGAINST = 6.0  # a gain seen on n samples counts n / (n + this)
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
OVERLAP_ERRORS = Limit(0.10, 0.03)  # share of errors from which we call it overlap
CHANCE_ERRORS = (2.0, 4.0)  # standard errors above guessing: uninformative up to the first, informative from the second


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


def decide(evidence: Evidence, limits: Limits = LIMITS) -> dict[str, Verdict]:
    """A verdict of each kind; a trouble that hides another makes that one "cannot tell", never "no"."""
    uninformative = _uninformative(evidence)
    if evidence.samples < TOO_FEW or uninformative.answer == "yes":
        why = _too_few(evidence) if evidence.samples < TOO_FEW else "The features do not tell the classes apart."
        hidden = Verdict("cannot tell", 0.5, [why])
        return dict(zip(KINDS, (hidden, hidden, _long_tail(evidence), hidden, uninformative), strict=True))
    noise = _label_noise(evidence, limits)
    found = (_shortcut(evidence, limits), noise, _long_tail(evidence, noise), _overlap(evidence, noise), uninformative)
    return dict(zip(KINDS, found, strict=True))


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


def shortcut_chance(pair: PairEvidence, noise: float = 0.0, limits: Limits = LIMITS, num_classes: int = 2) -> float:
    """The chance of a shortcut between two classes, given that of wrong labels: the better of two chains of limits.

    Among several classes, samples of a third one with a wrong label look like a group that is hurt: no chain beside noise.
    """
    clean = (
        limits.sureness.chance(excess_sureness(pair))
        * limits.agreement.chance(pair.agreement)
        * (1 - limits.disagreement.chance(pair.disagreement))
        * (1 - limits.followed.chance(pair.hurt_before))
        * (1 - limits.contradicted.chance(pair.against_share))
        * limits.served.chance(pair.hurt_after)
        * limits.gain.chance(shrunk_gain(pair))
        * (1 - 0.5 * noise)
    )
    noisy = noise * _beside_noise(pair, limits) if num_classes == 2 else 0.0
    chance = max(clean, noisy)
    if chance <= 0.5:
        return chance
    return 0.5 + (chance - 0.5) * limits.counted.chance(pair.against)


def _beside_noise(pair: PairEvidence, limits: Limits) -> float:
    """The chance of a shortcut between two classes, some of whose labels are wrong."""
    read = (pair.readability - 0.5) / max(pair.readability_error, 1e-12)
    bonus = limits.sharp_bonus * limits.sharp_agreement.chance(pair.agreement)
    return (
        limits.noisy_agreement.chance(pair.agreement)
        * limits.noisy_sureness.chance(pair.sureness)
        * (1 - limits.noisy_followed.chance(pair.hurt_before))
        * limits.noisy_read.chance(read + bonus)
    )


def excess_sureness(pair: PairEvidence) -> float:
    """The sureness of contradictions over that of as many errors between two Gaussians that overlap: 1 is overlap."""
    return pair.sureness / overlap_sureness(min(max(pair.against_share, 0.005), 0.49))


def overlap_sureness(errors: float) -> float:
    """Median margin of errors over that of what is right, for z ~ N(d, 1) with P(z < 0) = `errors`.

    >>> round(overlap_sureness(0.05), 2), round(overlap_sureness(0.3), 2)
    (0.18, 0.56)
    """
    quantile = NormalDist().inv_cdf
    distance = -quantile(errors)
    return -(distance + quantile(errors / 2)) / (distance + quantile((1 + errors) / 2))


def shrunk_gain(pair: PairEvidence) -> float:
    """The gain, smaller the fewer samples it was seen on."""
    return pair.gain * pair.against / (pair.against + FEW_AGAINST)


def noise_chance(evidence: Evidence, limits: Limits = LIMITS) -> float:
    """Errors that are as sure as what is right, and as frequent among the surest, are wrong labels.

    Asked of all predictions, and, unless classes are hard to tell apart, of those as one class, with a higher limit.
    """
    needed = needed_flatness(evidence, limits)
    overall = Flatness(evidence.error_sureness, evidence.sure_errors, evidence.errors)
    chance = _flat_chance(overall, needed, limits)
    if evidence.skill < SIDED_SKILL:
        return chance
    return max(chance, _flat_chance(evidence.sided, needed + SIDED_SHIFT, limits))


def flatness_above(evidence: Evidence, limits: Limits = LIMITS) -> float:
    """How far errors lie flatter than is needed to call them wrong labels."""
    needed = needed_flatness(evidence, limits)
    sided = evidence.sided.error_sureness + evidence.sided.sure_errors - SIDED_SHIFT
    return max(evidence.error_sureness + evidence.sure_errors, sided) - needed


def needed_flatness(evidence: Evidence, limits: Limits) -> float:
    skills, wanted = zip(*limits.flatness, strict=True)
    return float(np.interp(evidence.skill, skills, wanted))


def _flat_chance(found: Flatness, needed: float, limits: Limits) -> float:
    flat = Limit(needed, limits.flatness_width).chance(found.error_sureness + found.sure_errors)
    return min(flat, limits.sure_errors.chance(found.sure_errors * found.errors))


def telling_pair(evidence: Evidence, noise: float, limits: Limits = LIMITS) -> PairEvidence:
    """The pair of classes that stands for all: a shortcut of two values leaves half of them alone, the others show it."""
    classes = evidence.num_classes
    ranked = sorted(evidence.pairs, key=lambda pair: shortcut_chance(pair, noise, limits, classes), reverse=True)
    return ranked[round(0.4 * (len(ranked) - 1))]


def _shortcut(evidence: Evidence, limits: Limits) -> Verdict:
    if not evidence.pairs:
        return Verdict("cannot tell", 0.5, ["No two classes have samples enough to look for a shortcut between them."])
    noise = noise_chance(evidence, limits)
    pair = telling_pair(evidence, noise, limits)
    reasons = [
        f"The simplest rule that fits most labels contradicts {pair.against} of {pair.samples}, and it is "
        f"{excess_sureness(pair):.1f} times as sure of these as if the classes only looked alike (a shortcut: above "
        f"{limits.sureness.at}).",
        f"Learned twice, from different samples, such a rule changes its mind {pair.disagreement:.2f} times per sample "
        f"that it contradicts (a shortcut: below {limits.disagreement.at}). A plain model gets "
        f"{_per_cent(pair.hurt_before)} of those samples right (a shortcut: below {_per_cent(limits.followed.at)}).",
        f"Told what the rule says, models that have not seen those samples get {_per_cent(pair.hurt_after)} of them right, "
        f"and of all others {_per_cent(pair.helped_after)} instead of {_per_cent(pair.helped_before)}: a gain of "
        f"{shrunk_gain(pair):.3f} (a shortcut: above {limits.gain.at}; wrong labels: below).",
    ]
    chance = shortcut_chance(pair, noise, limits, evidence.num_classes)
    found = answered(frequency("shortcut", chance), reasons)
    if found.answer == "no" and evidence.lost > MOST_LOST:
        why = (
            f"A model of all features gets {_per_cent(evidence.lost)} more right than one of the main directions that this "
            "question is asked in: a shortcut may lie elsewhere."
        )
        return Verdict("cannot tell", 0.5, [*reasons, why], found.chance)
    return found


def _label_noise(evidence: Evidence, limits: Limits) -> Verdict:
    reasons = [
        f"Models that have not seen a sample contradict {_per_cent(evidence.errors)} of the labels, and are "
        f"{evidence.error_sureness:.2f} times as sure there as where they agree (wrong labels: near 1; classes that look "
        "alike: far below).",
        f"Among their surest predictions errors are {evidence.sure_errors:.2f} times as frequent as among all (wrong "
        "labels: near 1; classes that look alike: near 0).",
    ]
    sided = evidence.sided
    if sided.error_sureness + sided.sure_errors > evidence.error_sureness + evidence.sure_errors + SIDED_SHIFT:
        reasons.append(
            f"For one of the classes the two figures are higher, {sided.error_sureness:.2f} and {sided.sure_errors:.2f}: "
            "its samples may have been labelled as another class."
        )
    found = answered(frequency("label_noise", noise_chance(evidence, limits)), reasons)
    if found.answer == "yes" and evidence.skill < HARD_SKILL and flatness_above(evidence, limits) < CLEARLY_FLAT:
        why = (
            "The classes are hard to tell apart here, and hard samples can look like wrong labels: check a dozen labels by "
            "hand (icda ask shows them)."
        )
        return Verdict("cannot tell", 0.5, [*reasons, why], found.chance)
    return found


def _long_tail(evidence: Evidence, noise: Verdict | None = None) -> Verdict:
    ratio, (low, high) = evidence.ratio, TAIL_RATIO
    reasons = [
        f"The largest class has {ratio:.3g} times the samples of the smallest ({max(evidence.class_counts)} and "
        f"{min(evidence.class_counts)}; a long tail: from {high:g} on)."
    ]
    if noise is not None and noise.answer == "yes" and evidence.predicted_ratio > ratio > 2:
        # Wrong labels go from large classes to small ones: what heads say shows the sizes behind them.
        reasons.append(
            f"By what models say, wrong labels left out, it has {evidence.predicted_ratio:.3g} times as many."
        )
        ratio = (ratio * evidence.predicted_ratio**2) ** (1 / 3)
    place = (math.log(ratio) - math.log(low)) / (math.log(high) - math.log(low))
    return answered(min(max(NO + (YES - NO) * place, 0.02), 0.98), reasons)


def _overlap(evidence: Evidence, noise: Verdict) -> Verdict:
    errors = 1 - evidence.balanced_accuracy
    reasons = [f"With the classes counted alike, {_per_cent(errors)} are predicted wrongly."]
    chance = OVERLAP_ERRORS.chance(errors)
    if chance > NO and noise.answer != "no":
        return Verdict("cannot tell", 0.5, [*reasons, "Wrong labels may be the reason."])
    if chance > NO:
        reasons.append("Models are unsure where they are wrong: the classes look alike in these features.")
    return answered(chance, reasons)


def _uninformative(evidence: Evidence) -> Verdict:
    guess, error = 1 / evidence.num_classes, evidence.standard_error
    above = (evidence.balanced_accuracy - guess) / max(error, 1e-12)
    reasons = [
        f"With the classes counted alike, models that have not seen a sample get {_per_cent(evidence.balanced_accuracy)} "
        f"right; guessing gets {_per_cent(guess)} (standard error {_per_cent(error)})."
    ]
    if evidence.samples < TOO_FEW:
        return Verdict("cannot tell", 0.5, [*reasons, _too_few(evidence)])
    low, high = CHANCE_ERRORS
    place = (above - low) / (high - low)
    return answered(min(max(YES - (YES - NO) * place, 0.02), 0.98), reasons)


def _too_few(evidence: Evidence) -> str:
    return f"{evidence.samples} samples are too few to say (at least {TOO_FEW} are needed)."


def _per_cent(share: float) -> str:
    return f"{100 * share:.1f} %"
