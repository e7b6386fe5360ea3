"""What to try, and why: one finding per verdict that says yes, each with advice that runs as printed."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from icda.auditing.assessment import Assessment
from icda.auditing.rows import LabelNoise

FEW = 20  # training samples below which a class counts as few-shot, as in icda.metrics
MANY = 100
UNINFORMATIVE = "Use another encoder, or check that features and labels belong to the same rows."
SHORTCUT = (
    "Fit icda.RobustClassifier().fit(X, y), which takes a prior over what the shortcut says off the logits; look at "
    "the samples at the top of the ranking for what they share."
)
LABEL_NOISE = (
    "Check the labels of lowest quality by hand, correct them or leave them out; icda.RobustClassifier().fit(X, y) "
    'lets doubtful ones count less where that helps. Do not use balance="contrast": it would let them count more.'
)
OVERLAP = "Try another encoder or more data: reweighting will not tell these classes apart."
LONG_TAIL = (
    'Try logit adjustment, icda.ICDAClassifier(loss="la") or icda.RobustClassifier(), or loss="icda", which has the same '
    "prior term and augments rare classes with the features of others; judge by balanced accuracy."
)
UNEVEN = 'Try icda.ICDAClassifier(loss="la") or balance="class", if all classes matter alike.'
UNEVEN_RATIO = 3.0  # largest class over smallest from which balancing the classes is worth a try


@dataclass(frozen=True)
class Imbalance:
    """`ratio` is the largest class over the smallest; `entropy` that of the class shares over its largest value."""

    counts: list[int]
    ratio: float
    entropy: float
    few: list[str]
    medium: int
    many: int


def measure_imbalance(counts: np.ndarray, names: list[str]) -> Imbalance:
    """The long-tail section.

    >>> measure_imbalance(np.array([300, 30, 3]), ["cat", "dog", "emu"]).few
    ['emu']
    >>> round(measure_imbalance(np.array([10, 10]), ["a", "b"]).entropy, 6)
    1.0
    """
    shares = counts / counts.sum()
    entropy = float(-(shares * np.log(shares)).sum() / np.log(len(counts)))
    few = [names[k] for k in np.argsort(counts, kind="stable") if counts[k] < FEW]
    many = int((counts > MANY).sum())
    return Imbalance(
        [int(count) for count in counts],
        float(counts.max() / counts.min()),
        entropy,
        few,
        len(counts) - len(few) - many,
        many,
    )


@dataclass(frozen=True)
class Finding:
    """One thing found: its name, what to try, the reasons in sentences, and the figures they rest on."""

    name: str
    advice: str
    reasons: list[str]
    figures: dict[str, Any]


def recommend(assessment: Assessment, imbalance: Imbalance, noise: LabelNoise) -> list[Finding]:
    """All findings; empty when no verdict says yes and the classes are about even."""
    reasons = {kind: verdict.reasons for kind, verdict in assessment.verdicts.items()}
    treatment, balanced, told = assessment.treatment, assessment.evidence.balanced_accuracy, ""
    if treatment.name != "shortcut_prior":
        told = f" {' '.join(treatment.reasons)}"
    elif treatment.effect is not None:
        told = f" Expected: {treatment.effect}."
    confidence = assessment.verdicts["shortcut"].confidence
    marked = (
        f"{noise.num_issues} labels are confidently another class's; the confident joint puts the share of wrong "
        f"labels at {100 * noise.rate:.1f} %."
    )
    wrong = {"rate": noise.rate, "issues": noise.num_issues, "found_by": noise.found_by}
    sizes = (
        f"The largest class has {imbalance.ratio:.3g} times the samples of the smallest; {len(imbalance.few)} of "
        f"{len(imbalance.counts)} classes have fewer than {FEW}. The entropy of the class shares is "
        f"{imbalance.entropy:.2f} of its maximum."
    )
    shares = {"ratio": imbalance.ratio, "entropy": imbalance.entropy, "few_shot_classes": len(imbalance.few)}
    guessed = {"balanced_accuracy": balanced, "standard_error": assessment.evidence.standard_error}
    treated = {"confidence": confidence, "treatment": treatment.as_dict()}
    made = {
        "uninformative": Finding("uninformative_features", UNINFORMATIVE, reasons["uninformative"], guessed),
        "shortcut": Finding("shortcut", f"{SHORTCUT}{told}", reasons["shortcut"], treated),
        "label_noise": Finding("label_noise", LABEL_NOISE, [*reasons["label_noise"], marked], wrong),
        "long_tail": Finding("long_tail", LONG_TAIL, [sizes], shares),
        "overlap": Finding("overlap", OVERLAP, reasons["overlap"], {"errors": 1 - balanced}),
    }
    found = [finding for kind, finding in made.items() if assessment.verdicts[kind].answer == "yes"]
    if made["long_tail"] not in found and imbalance.ratio >= UNEVEN_RATIO:
        found.append(Finding("uneven_classes", UNEVEN, [sizes], shares))
    return found
