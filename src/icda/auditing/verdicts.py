"""One answer per kind of trouble, each with its own evidence, a confidence and the reasons in sentences.

The limits and the words are those of `icda.cross_fit.rules`; here they are applied to what heads show.
"""

from icda.auditing.evidence import Evidence
from icda.cross_fit import rules
from icda.cross_fit.flatness import Flatness
from icda.cross_fit.pairs import PairEvidence
from icda.cross_fit.rules import (
    LIMITS,
    NO,
    SIDED_SHIFT,
    YES,
    Limit,
    Limits,
    Verdict,
    answered,
    frequency,
    per_cent,
    tail_verdict,
)

KINDS = ("shortcut", "label_noise", "long_tail", "overlap", "uninformative")
TOO_FEW = 40  # samples below which nothing but class sizes is judged
HARD_SKILL, CLEARLY_FLAT = 0.75, 0.2  # below this skill, errors must lie so much flatter before labels are called wrong
MOST_LOST = 0.03  # accuracy that the sketch may lose before "no" becomes "cannot tell"
OVERLAP_ERRORS = Limit(0.10, 0.03)  # share of errors from which we call it overlap
CHANCE_ERRORS = (2.0, 4.0)  # standard errors above guessing: uninformative up to the first, informative from the second


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


def shortcut_chance(pair: PairEvidence, noise: float = 0.0, limits: Limits = LIMITS, num_classes: int = 2) -> float:
    """The chance of a shortcut between two classes, given that of wrong labels: the better of two chains of limits.

    Among several classes, samples of a third one with a wrong label look like a group that is hurt: no chain beside noise.
    """
    clean = (
        limits.sureness.chance(rules.excess_sureness(pair.sureness, pair.against_share))
        * limits.agreement.chance(pair.agreement)
        * (1 - limits.disagreement.chance(pair.disagreement))
        * (1 - limits.followed.chance(pair.hurt_before))
        * (1 - limits.contradicted.chance(pair.against_share))
        * limits.served.chance(pair.hurt_after)
        * limits.gain.chance(pair.shrunk_gain)
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


def noise_chance(evidence: Evidence, limits: Limits = LIMITS) -> float:
    """The chance of wrong labels by how flat the errors of heads lie."""
    overall = Flatness(evidence.error_sureness, evidence.sure_errors, evidence.errors)
    return rules.noise_chance(evidence.skill, overall, evidence.sided, limits)


def flatness_above(evidence: Evidence, limits: Limits = LIMITS) -> float:
    """How far errors lie flatter than is needed to call them wrong labels."""
    sided = evidence.sided.error_sureness + evidence.sided.sure_errors - SIDED_SHIFT
    return max(evidence.error_sureness + evidence.sure_errors, sided) - rules.needed_flatness(evidence.skill, limits)


def confused_pair(evidence: Evidence, noise: float, limits: Limits = LIMITS) -> PairEvidence:
    """The pair of classes that stands for all: a shortcut of two values leaves half of them alone, the others show it."""
    classes = evidence.num_classes
    ranked = sorted(evidence.pairs, key=lambda pair: shortcut_chance(pair, noise, limits, classes), reverse=True)
    return ranked[round(0.4 * (len(ranked) - 1))]


def _shortcut(evidence: Evidence, limits: Limits) -> Verdict:
    if not evidence.pairs:
        return Verdict("cannot tell", 0.5, ["No two classes have samples enough to look for a shortcut between them."])
    noise = noise_chance(evidence, limits)
    pair = confused_pair(evidence, noise, limits)
    sureness = rules.excess_sureness(pair.sureness, pair.against_share)
    reasons = [
        f"The simplest rule that fits most labels contradicts {pair.against} of {pair.samples}, and it is {sureness:.1f} "
        f"times as sure of these as if the classes only looked alike (a shortcut: above {limits.sureness.at}).",
        f"Learned twice, from different samples, such a rule changes its mind {pair.disagreement:.2f} times per sample "
        f"that it contradicts (a shortcut: below {limits.disagreement.at}). A plain model gets "
        f"{per_cent(pair.hurt_before)} of those samples right (a shortcut: below {per_cent(limits.followed.at)}).",
        f"Told what the rule says, models that have not seen those samples get {per_cent(pair.hurt_after)} of them right, "
        f"and of all others {per_cent(pair.helped_after)} instead of {per_cent(pair.helped_before)}: a gain of "
        f"{pair.shrunk_gain:.3f} (a shortcut: above {limits.gain.at}; wrong labels: below).",
    ]
    chance = shortcut_chance(pair, noise, limits, evidence.num_classes)
    found = answered(frequency("shortcut", chance), reasons)
    if found.answer == "no" and evidence.lost > MOST_LOST:
        why = (
            f"A model of all features gets {per_cent(evidence.lost)} more right than one of the main directions that this "
            "question is asked in: a shortcut may lie elsewhere."
        )
        return Verdict("cannot tell", 0.5, [*reasons, why], found.chance)
    return found


def _label_noise(evidence: Evidence, limits: Limits) -> Verdict:
    reasons = [
        f"Models that have not seen a sample contradict {per_cent(evidence.errors)} of the labels, and are "
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
    is_noisy = noise is not None and noise.answer == "yes"
    return tail_verdict(evidence.class_counts, evidence.predicted_ratio if is_noisy else 0.0)


def _overlap(evidence: Evidence, noise: Verdict) -> Verdict:
    errors = 1 - evidence.balanced_accuracy
    reasons = [f"With the classes counted alike, {per_cent(errors)} are predicted wrongly."]
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
        f"With the classes counted alike, models that have not seen a sample get {per_cent(evidence.balanced_accuracy)} "
        f"right; guessing gets {per_cent(guess)} (standard error {per_cent(error)})."
    ]
    if evidence.samples < TOO_FEW:
        return Verdict("cannot tell", 0.5, [*reasons, _too_few(evidence)])
    low, high = CHANCE_ERRORS
    place = (above - low) / (high - low)
    return answered(min(max(YES - (YES - NO) * place, 0.02), 0.98), reasons)


def _too_few(evidence: Evidence) -> str:
    return f"{evidence.samples} samples are too few to say (at least {TOO_FEW} are needed)."
