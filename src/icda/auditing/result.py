"""What an audit found, and the forms it can be taken away in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from icda.auditing.exhibits import collect_exhibits, show_images, show_texts
from icda.auditing.label_noise import LabelNoise
from icda.auditing.page import render_audit_page
from icda.auditing.summary import AuditSummary, write_page
from icda.auditing.ties import Separability, Ties
from icda.errors import InputError
from icda.extras import require
from icda.results.foreign_text import write_csv

COLUMNS = (
    "index",
    "name",
    "label",
    "tied_to",
    "strength",
    "tie",
    "suspected",
    "group",
    "predicted",
    "label_quality",
    "label_issue",
)


@dataclass(frozen=True, repr=False)
class Audit(AuditSummary):
    """The findings of `icda.audit`.

    `verdicts` answer one question each: "shortcut", "label_noise", "long_tail", "overlap", "uninformative". `treatment` is
    what to do about them, tried by cross-fitting, and `findings` say both in sentences. `ties`, `costs`, `imbalance` and
    `noise` hold figures of samples and classes. Rows come out most tied first.
    """

    sample_names: list[str]
    targets: np.ndarray
    ties: Ties
    noise: LabelNoise

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def found_noise(self) -> LabelNoise:
        return self.noise

    @property
    def tie_figures(self) -> tuple[np.ndarray, Separability | None, int]:
        return self.ties.matrix, self.ties.separability, int(self.ties.suspected.sum())

    def most_tied(self, top: int | None) -> list[dict[str, Any]]:
        return list(self.rows(self.tie_ranking()[:top]))

    def most_doubtful(self, top: int | None) -> list[dict[str, Any]]:
        return list(self.rows(self.label_ranking()[:top]))

    def tie_ranking(self) -> np.ndarray:
        """Sample numbers, the most tied first."""
        return np.argsort(-self.ties.tie, kind="stable")

    def label_ranking(self) -> np.ndarray:
        """Sample numbers, the most doubtful label first."""
        return np.argsort(self.noise.quality, kind="stable")

    def rows(self, order: np.ndarray | None = None) -> Iterator[dict[str, Any]]:
        """A dictionary with `COLUMNS` for each sample, the most tied first unless `order` says otherwise."""
        names, predicted = self.class_names, self.ties.predicted
        for i in self.tie_ranking() if order is None else order:
            label, suspected = names[self.targets[i]], bool(self.ties.suspected[i])
            values = (
                int(i),
                self.sample_names[i],
                label,
                names[self.ties.tied_to[i]],
                float(self.ties.strength[i]),
                float(self.ties.tie[i]),
                suspected,
                f"{label}, {'tied' if suspected else 'rest'}",
                names[predicted[i]],
                float(self.noise.quality[i]),
                bool(self.noise.issues[i]),
            )
            yield dict(zip(COLUMNS, values, strict=True))

    def to_frame(self) -> Any:
        """A pandas DataFrame of all rows, the most tied first."""
        pandas = require("pandas", "audit", "data frames")
        return pandas.DataFrame.from_records(list(self.rows()), columns=list(COLUMNS))

    def to_cleanlab(self) -> dict[str, np.ndarray]:
        """`labels` and `pred_probs` as cleanlab's functions take them: `cleanlab.filter.find_label_issues(**...)`."""
        return {"labels": self.targets, "pred_probs": self.ties.probabilities}

    def to_csv(self, path: str | PathLike[str]) -> Path:
        """Write all rows, the most tied first, as a table; names that spreadsheets take for formulas become text."""
        path = Path(path).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            write_csv(file, COLUMNS, self.rows())
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
        return write_page(path, render_audit_page(self.as_dict(top) | self.exhibits(images=images, texts=texts)))

    def exhibits(
        self, *, images: Sequence[object] | None = None, texts: Sequence[object] | None = None
    ) -> dict[str, Any]:
        """Suspects with their pictures or texts, as the page shows them; empty without either."""
        if images is not None and texts is not None:
            raise InputError("give images or texts, not both.")
        if images is not None:
            return {"exhibits": collect_exhibits(self, show_images(images, len(self)))}
        if texts is not None:
            return {"exhibits": collect_exhibits(self, show_texts(texts, len(self)))}
        return {}
