"""What every audit says, whether its rows were in memory or stayed on disk."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from icda.auditing.assessment import Assessment
from icda.auditing.imbalance import Imbalance
from icda.auditing.label_noise import LabelNoise, NoiseFigures
from icda.auditing.recommendation import Finding
from icda.auditing.ties import ClassCost, Separability
from icda.auditing.treatment import Treatment
from icda.auditing.verdicts import Verdict
from icda.report.markup import element
from icda.report.sections.action import in_short
from icda.report.sections.verdicts import verdict_parts


@dataclass(frozen=True, repr=False)
class AuditSummary(ABC):
    """Verdicts, treatment, findings and what ties cost; the rows come from those who know where they are."""

    class_names: list[str]
    costs: list[ClassCost]
    imbalance: Imbalance
    assessment: Assessment
    findings: list[Finding]
    notes: list[str]
    settings: dict[str, Any]
    seconds: float = field(compare=False)

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def found_noise(self) -> LabelNoise | NoiseFigures: ...

    @property
    @abstractmethod
    def tie_figures(self) -> tuple[np.ndarray, Separability | None, int]:
        """Mean strengths between classes (C, C), whether suspects have features of their own, and their number."""

    @abstractmethod
    def most_tied(self, top: int | None) -> list[dict[str, Any]]:
        """The first rows of the ranking by tie."""

    @abstractmethod
    def most_doubtful(self, top: int | None) -> list[dict[str, Any]]:
        """The first rows of the ranking by the quality of the label."""

    @property
    def summary(self) -> str:
        """What was found and what is not clear, in one line."""
        return self.assessment.summary

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """One answer per kind of trouble, with its confidence and its reasons."""
        return self.assessment.verdicts

    @property
    def treatment(self) -> Treatment:
        """What `icda.RobustClassifier` would do, and what is expected of it."""
        return self.assessment.treatment

    @property
    def worst(self) -> ClassCost | None:
        """The class whose suspected part is predicted worst: the estimated worst pseudo-group."""
        known = [cost for cost in self.costs if cost.accuracy_suspected is not None]
        return min(known, key=lambda cost: (cost.accuracy_suspected, -cost.suspected), default=None)

    def as_dict(self, top: int | None = None) -> dict[str, Any]:
        """Everything as plain lists and numbers; `top` keeps only that many rows of each ranking."""
        noise, worst = self.found_noise, self.worst
        matrix, separability, suspected = self.tie_figures
        return {
            "kind": "icda.audit",
            "summary": self.summary,
            "settings": dict(self.settings),
            "seconds": self.seconds,
            "class_names": list(self.class_names),
            "notes": list(self.notes),
            **{key: value for key, value in self.assessment.as_dict().items() if key != "summary"},
            "findings": [finding.as_dict() for finding in self.findings],
            "ties": {
                "matrix": matrix.tolist(),
                "classes": [asdict(cost) for cost in self.costs],
                "worst": None if worst is None else asdict(worst),
                "separability": None if separability is None else asdict(separability),
                "suspected": suspected,
            },
            "imbalance": asdict(self.imbalance),
            "label_noise": {
                "rate": noise.rate,
                "issues": noise.num_issues,
                "found_by": noise.found_by,
                "thresholds": noise.thresholds.tolist(),
                "joint": noise.joint.tolist(),
            },
            "samples": self.most_tied(top),
            "doubtful_labels": self.most_doubtful(100 if top is None else top),
        }

    def to_json(self, path: str | PathLike[str], top: int | None = None) -> Path:
        """Write `as_dict` to a file."""
        return write_page(path, json.dumps(self.as_dict(top), indent=1, ensure_ascii=True, allow_nan=False) + "\n")

    def __rich__(self) -> Any:
        from icda.auditing.console import overview

        return overview(self)

    def __repr__(self) -> str:
        return f"<Audit of {len(self)} samples, {len(self.class_names)} classes. {self.summary}>"

    def __str__(self) -> str:
        from icda.auditing.console import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: what was found, what to do, and the verdicts."""
        audited = self.as_dict(10)
        return str(element("div", in_short(audited, 3), verdict_parts(audited, 3)))


def write_page(path: str | PathLike[str], content: str) -> Path:
    """A text file; names read from a file system may hold lone surrogates, which UTF-8 cannot carry."""
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8", errors="xmlcharrefreplace")
    return path
