"""What to try, and why: plain sentences with the figures behind each, by thresholds that are written down here."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from icda.auditing.imbalance import FEW, Imbalance
from icda.auditing.label_noise import LabelNoise
from icda.auditing.ties import ClassCost, Separability

# Each is ours and a rule of thumb: docs/audit.md shows what they say of the data they were looked at on.
LONG_TAIL_RATIO = 10.0  # largest class over smallest from which we speak of a long tail
UNEVEN_RATIO = 3.0  # and from which balancing the classes is worth a try
SUSPECTS = 10  # suspected samples of a class below which its gap is an anecdote
GAP = 0.2  # accuracy that a class's suspected part must lack beside the rest
OWN_FEATURES = 0.57  # separability from which, its lower bound above one half, suspects have features of their own
NOISE_RATE = 0.05  # estimated share of wrong labels from which we speak of noise; overlap alone was put at 0.03 to 0.04
OVERLAP_ERRORS = 0.1  # share of errors, explained by nothing above, from which we speak of overlap
CHANCE_ERRORS = 3.0  # standard errors by which balanced accuracy must beat guessing


@dataclass(frozen=True)
class Finding:
    """One thing found: its name, what to try, the reasons in sentences, and the figures they rest on."""

    name: str
    advice: str
    reasons: list[str]
    figures: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def recommend(
    costs: list[ClassCost], separability: Separability | None, imbalance: Imbalance, noise: LabelNoise
) -> list[Finding]:
    """All findings, those that the others depend on first; empty when nothing was found."""
    uninformative = _uninformative(costs)
    if uninformative is not None:
        return [uninformative, *_present(_long_tail(imbalance))]
    tie = _tied_groups(costs, separability)
    wrong_labels = _label_noise(noise, separability)
    overlap = None if tie or wrong_labels else _overlap(costs, separability)
    return _present(tie, wrong_labels, _long_tail(imbalance), overlap)


def has_own_features(separability: Separability | None) -> bool:
    """Whether the suspects look like a group with features of its own: a tie, rather than wrong labels or overlap."""
    return separability is not None and separability.auroc >= OWN_FEATURES and separability.low > 0.5


def summary(findings: list[Finding]) -> str:
    """One line.

    >>> summary([])
    'Nothing found that calls for more than plain training.'
    """
    if not findings:
        return "Nothing found that calls for more than plain training."
    return f"Found: {', '.join(finding.name.replace('_', ' ') for finding in findings)}."


def _present(*findings: Finding | None) -> list[Finding]:
    return [finding for finding in findings if finding is not None]


def _uninformative(costs: list[ClassCost]) -> Finding | None:
    guess = 1 / len(costs)
    accuracy = sum(cost.accuracy for cost in costs) / len(costs)
    error = math.sqrt(sum(guess * (1 - guess) / cost.samples for cost in costs)) / len(costs)
    if accuracy > guess + CHANCE_ERRORS * error:
        return None
    return Finding(
        "uninformative_features",
        "Use another encoder, or check that features and labels belong to the same rows.",
        [
            f"Heads that have not seen a sample get a balanced accuracy of {accuracy:.3f}; guessing gets {guess:.3f} "
            f"(standard error {error:.3f}). Ties and label noise cannot be judged on such features."
        ],
        {"balanced_accuracy": accuracy, "guessing": guess, "standard_error": error},
    )


def _tied_groups(costs: list[ClassCost], separability: Separability | None) -> Finding | None:
    hurt = [cost for cost in costs if cost.suspected >= SUSPECTS and cost.gap >= GAP]
    if not hurt or separability is None or not has_own_features(separability):
        return None
    hurt.sort(key=lambda cost: -cost.gap)
    reasons = [
        f"{cost.suspected} of the {cost.samples} samples of {cost.name} are tied to another class, most of them to "
        f"{cost.tied_to}: {_per_cent(cost.accuracy_suspected)} of them are predicted right, of the rest "
        f"{_per_cent(cost.accuracy_rest)}."
        for cost in hurt[:5]
    ]
    reasons.append(
        "The suspects that are predicted wrongly can be told from the class they are taken for "
        f"({_area(separability)}; wrong labels would give 0.5): they have features of their own, which a head that lets "
        "them count can use. A shortcut does this, and so does a rare kind of sample within a class: look at the samples "
        "to tell which."
    )
    return Finding(
        "tied_groups",
        'Try ICDAClassifier(balance="contrast"), which balances the suspected groups, and look at the samples at the top '
        "of the ranking for what they share.",
        reasons,
        {"classes": [cost.name for cost in hurt], "worst_gap": hurt[0].gap, "separability": asdict(separability)},
    )


def _label_noise(noise: LabelNoise, separability: Separability | None) -> Finding | None:
    if noise.rate < NOISE_RATE:
        return None
    reasons = [
        f"{int(noise.issues.sum())} labels are confidently another class's; the confident joint puts the share of wrong "
        f"labels at {_per_cent(noise.rate)} (from {_per_cent(NOISE_RATE)} on we speak of noise)."
    ]
    if separability is None:
        reasons.append("There are too few suspects to tell wrong labels from ties.")
    elif has_own_features(separability):
        reasons.append(
            f"But the suspects can partly be told from the class they are taken for (AUROC "
            f"{separability.auroc:.2f}): some of these may be a rare group, not wrong labels. Look before you delete."
        )
    else:
        reasons.append(
            f"The suspects cannot be told from the class they are taken for ({_area(separability)}), as wrong labels "
            "cannot; nor can classes that overlap, or rare groups whose own features the encoder does not show."
        )
    return Finding(
        "label_noise",
        "Check the labels of lowest quality by hand; then correct them, leave them out, or train with a method made for "
        "noise: generalized_cross_entropy or co_teaching, or meta_icda and meta_weight_net with some checked metadata. Do "
        'not use balance="contrast" before: it would let wrong labels count more.',
        reasons,
        {"rate": noise.rate, "issues": int(noise.issues.sum()), "found_by": noise.found_by},
    )


def _long_tail(imbalance: Imbalance) -> Finding | None:
    if imbalance.ratio < UNEVEN_RATIO:
        return None
    figures = {"ratio": imbalance.ratio, "entropy": imbalance.entropy, "few_shot_classes": len(imbalance.few)}
    reasons = [
        f"The largest class has {imbalance.ratio:.3g} times the samples of the smallest; {len(imbalance.few)} of "
        f"{len(imbalance.counts)} classes have fewer than {FEW}. The entropy of the class shares is "
        f"{imbalance.entropy:.2f} of its maximum."
    ]
    if imbalance.ratio < LONG_TAIL_RATIO:
        advice = 'Try ICDAClassifier(loss="la") or balance="class", if all classes matter alike.'
        return Finding("uneven_classes", advice, reasons, figures)
    advice = (
        'Try logit adjustment, ICDAClassifier(loss="la"), or loss="icda", which has the same prior term and augments rare '
        "classes with the features of others; judge by balanced accuracy, not by accuracy."
    )
    return Finding("long_tail", advice, reasons, figures)


def _overlap(costs: list[ClassCost], separability: Separability | None) -> Finding | None:
    samples = sum(cost.samples for cost in costs)
    errors = 1 - sum(cost.accuracy * cost.samples for cost in costs) / samples
    if errors < OVERLAP_ERRORS or has_own_features(separability):
        return None
    wrong = f"{_per_cent(errors)} of the samples are predicted wrongly, few of them confidently"
    if separability is None:
        return Finding(
            "overlap",
            "Try another encoder or more data; with more data the audit can also say whether it is overlap.",
            [f"{wrong}. There are too few suspects to tell overlap from ties."],
            {"errors": errors, "separability": None},
        )
    return Finding(
        "overlap",
        "Try another encoder or more data: reweighting will not tell these classes apart.",
        [
            f"{wrong}, and the suspects among them cannot be told from the class they are taken for (AUROC "
            f"{separability.auroc:.2f})."
        ],
        {"errors": errors, "separability": asdict(separability)},
    )


def _per_cent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.1f} %"


def _area(separability: Separability) -> str:
    return f"AUROC {separability.auroc:.2f}, 95 % from {separability.low:.2f} to {separability.high:.2f}"
