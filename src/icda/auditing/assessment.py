"""Evidence, verdicts and treatment together: what `icda.audit` and `icda.RobustClassifier` both rest on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from icda.auditing.evidence import Evidence, gather_evidence, make_sketch
from icda.auditing.treatment import Treatment, choose_treatment
from icda.auditing.verdicts import Verdict, decide
from icda.linear.threads import threads_for


@dataclass(frozen=True)
class Assessment:
    """The figures, one verdict per kind of trouble, and what to do."""

    evidence: Evidence
    verdicts: dict[str, Verdict]
    treatment: Treatment

    @property
    def summary(self) -> str:
        """What was found and what is not clear, in one line."""
        return summarise(self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        return {
            "summary": self.summary,
            "verdicts": {kind: verdict.as_dict() for kind, verdict in self.verdicts.items()},
            "treatment": self.treatment.as_dict(),
            "evidence": self.evidence.as_dict(),
        }


def assess(features: Tensor, targets: Tensor, num_classes: int, seed: int = 0) -> Assessment:
    """Assess standardised features (N, A) and labels 0 .. C-1."""
    sketch = make_sketch(features, seed)
    with threads_for(sketch.features.numel() * num_classes):
        evidence = gather_evidence(sketch, targets, num_classes, seed)
        verdicts = decide(evidence)
        treatment = choose_treatment(sketch, targets, num_classes, verdicts, seed)
    return Assessment(evidence, verdicts, treatment)


def summarise(verdicts: dict[str, Verdict]) -> str:
    """One line.

    >>> summarise({"shortcut": Verdict("yes", 0.9, []), "overlap": Verdict("no", 0.9, [])})
    'Found: shortcut.'
    """
    found = [kind.replace("_", " ") for kind, verdict in verdicts.items() if verdict.answer == "yes"]
    unclear = [kind.replace("_", " ") for kind, verdict in verdicts.items() if verdict.answer == "cannot tell"]
    said = f"Found: {', '.join(found)}." if found else "Nothing found that calls for more than plain training."
    return f"{said} Cannot tell: {', '.join(unclear)}." if unclear else said
