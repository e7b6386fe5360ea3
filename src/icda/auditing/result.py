"""What an audit found, and the forms it can be taken away in."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from icda.auditing.assessment import Assessment
from icda.auditing.page import collect_exhibits, render_audit_page, show_images, show_texts
from icda.auditing.recommendation import Finding, Imbalance
from icda.auditing.rows import COLUMNS, LabelNoise, RowFigures
from icda.auditing.ties import ClassCost, Separability
from icda.auditing.treatment import Treatment
from icda.cross_fit.rules import Verdict
from icda.errors import InputError
from icda.extras import require
from icda.report.markup import element
from icda.report.sections.verdicts import in_short, verdict_parts
from icda.results.files import replacing_text, write_atomically, write_page
from icda.results.foreign_text import write_csv

WHOLE_TABLE = 100  # classes; of more, a file has the largest entries of each row instead of all C x C
LARGEST = 10


@dataclass(frozen=True, repr=False)
class Audit:
    """The findings of `icda.audit`, and of the audit over blocks.

    `verdicts` answer one question each: "shortcut", "label_noise", "long_tail", "overlap", "uninformative". `treatment` is
    what to do about them, tried by cross-fitting, and `findings` say both in sentences. `costs`, `imbalance` and `noise`
    hold figures of classes. Of samples in memory `ties`, in their order, `probabilities` (N, C) of balanced heads that have
    not seen them, and `sample_names` are known too; of rows in blocks only the first of both rankings, all others are in
    files. Rows come out most tied first.
    """

    class_names: list[str]
    samples: int
    costs: list[ClassCost]
    imbalance: Imbalance
    assessment: Assessment
    findings: list[Finding]
    noise: LabelNoise
    matrix: np.ndarray  # (C, C), mean strength of row class towards column class
    separability: Separability | None
    tied: RowFigures  # rows, the most tied first
    doubtful: RowFigures  # rows, the most doubtful label first
    notes: list[str]
    settings: dict[str, Any]
    seconds: float = field(compare=False)
    ties: RowFigures | None = None
    probabilities: np.ndarray | None = None
    sample_names: list[str] | None = None

    def __len__(self) -> int:
        return self.samples

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

    @property
    def suspected(self) -> int:
        """How many samples are suspected."""
        return sum(cost.suspected for cost in self.costs)

    def most_tied(self, top: int | None) -> list[dict[str, Any]]:
        """The first rows of the ranking by tie."""
        return list(self._records(self.tied.chosen(slice(top))))

    def most_doubtful(self, top: int | None) -> list[dict[str, Any]]:
        """The first rows of the ranking by the quality of the label."""
        return list(self._records(self.doubtful.chosen(slice(top))))

    def tie_ranking(self) -> np.ndarray:
        """Sample numbers, the most tied first."""
        return self.tied.row

    def label_ranking(self) -> np.ndarray:
        """Sample numbers, the most doubtful label first."""
        return self.doubtful.row

    def rows(self, order: np.ndarray | None = None) -> Iterator[dict[str, Any]]:
        """A dictionary with `COLUMNS` for each sample, the most tied first unless `order` says otherwise."""
        return self._records(self.tied if order is None else self.in_memory()[0].chosen(order))

    def _records(self, figures: RowFigures) -> Iterator[dict[str, Any]]:
        return figures.records(self.class_names, self.sample_names)

    def as_dict(self, top: int | None = None) -> dict[str, Any]:
        """Everything as plain lists and numbers; `top` keeps only that many rows of each ranking."""
        noise, worst, separability = self.noise, self.worst, self.separability
        return {
            "kind": "icda.audit",
            "summary": self.summary,
            "settings": dict(self.settings),
            "seconds": self.seconds,
            "class_names": list(self.class_names),
            "notes": list(self.notes),
            **{key: value for key, value in self.assessment.as_dict().items() if key != "summary"},
            "findings": [asdict(finding) for finding in self.findings],
            "ties": {
                "matrix": self.matrix.tolist(),
                "classes": [asdict(cost) for cost in self.costs],
                "worst": None if worst is None else asdict(worst),
                "separability": None if separability is None else asdict(separability),
                "suspected": self.suspected,
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

    def to_frame(self) -> Any:
        """A pandas DataFrame of all rows, the most tied first."""
        pandas = require("pandas", "audit", "data frames")
        return pandas.DataFrame.from_records(list(self.rows()), columns=list(COLUMNS))

    def to_cleanlab(self) -> dict[str, np.ndarray]:
        """`labels` and `pred_probs` as cleanlab's functions take them: `cleanlab.filter.find_label_issues(**...)`."""
        ties, probabilities = self.in_memory()
        return {"labels": ties.label, "pred_probs": probabilities}

    def to_csv(self, path: str | PathLike[str]) -> Path:
        """Write all rows, the most tied first, as a table; names that spreadsheets take for formulas become text."""
        path = Path(path).expanduser()
        with replacing_text(path) as file:
            write_csv(file, COLUMNS, self.rows())
        return path

    def to_json(self, path: str | PathLike[str], top: int | None = None) -> Path:
        """Write `as_dict` to a file; where classes are many, only the largest entries of tables of class by class."""
        known = self.as_dict(top)
        for part, name, values in (("ties", "matrix", self.matrix), ("label_noise", "joint", self.noise.joint)):
            if len(values) > WHOLE_TABLE:
                known[part][name], known[part][f"largest_in_{name}"] = None, _largest(values)
        path, text = Path(path).expanduser(), json.dumps(known, indent=1, allow_nan=False)
        write_atomically(path, f"{text}\n".encode(), new_folder=True)
        return path

    def to_html(
        self,
        path: str | PathLike[str],
        top: int = 50,
        *,
        images: Sequence[object] | None = None,
        texts: Sequence[object] | None = None,
    ) -> Path:
        """Write one page that needs nothing beside it, with the first `top` rows of each ranking.

        `images` (paths) or `texts`, one for each sample, are shown for the suspects and beside them.
        """
        if images is not None and texts is not None:
            raise InputError("give images or texts, not both.")
        path, known = Path(path).expanduser(), self.as_dict(top)
        if images is not None:
            known["exhibits"] = collect_exhibits(self, show_images(images, len(self)))
        elif texts is not None:
            known["exhibits"] = collect_exhibits(self, show_texts(texts, len(self)))
        write_page(path, render_audit_page(known))
        return path

    def in_memory(self) -> tuple[RowFigures, np.ndarray]:
        """Figures of the samples in their order, and probabilities (N, C)."""
        if self.ties is None or self.probabilities is None:
            raise InputError("this audit was made over blocks: figures of every row are in its files.")
        return self.ties, self.probabilities

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


def _largest(values: np.ndarray) -> list[list[float]]:
    """Row, column and value of the largest entries (C, C) of each row beside the diagonal."""
    apart = np.where(np.eye(len(values), dtype=bool), -np.inf, values)
    columns = np.argsort(-apart, 1)[:, :LARGEST]
    return [[row, int(column), float(apart[row, column])] for row, own in enumerate(columns) for column in own]
