"""What an audit over blocks found: the same as `Audit`, with the rows in files instead of memory."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from icda.auditing.block_rows import RowFigures, RowSums
from icda.auditing.label_noise import NoiseFigures
from icda.auditing.page import render_audit_page
from icda.auditing.summary import AuditSummary, write_page
from icda.auditing.ties import ClassCost, Separability


@dataclass(frozen=True, repr=False)
class BlockAudit(AuditSummary):
    """The findings of `audit_blocks`; `tied` and `doubtful` are the first rows of both rankings."""

    samples: int
    noise: NoiseFigures
    matrix: np.ndarray
    separability: Separability | None
    suspected: int
    tied: RowFigures
    doubtful: RowFigures
    passes: int

    def __len__(self) -> int:
        return self.samples

    @property
    def found_noise(self) -> NoiseFigures:
        return self.noise

    @property
    def tie_figures(self) -> tuple[np.ndarray, Separability | None, int]:
        return self.matrix, self.separability, self.suspected

    def most_tied(self, top: int | None) -> list[dict[str, Any]]:
        return list(self.tied.records(self.class_names))[:top]

    def most_doubtful(self, top: int | None) -> list[dict[str, Any]]:
        return list(self.doubtful.records(self.class_names))[:top]

    def to_html(self, path: str | PathLike[str], top: int = 50) -> Path:
        """Write one page that needs nothing beside it, with the first `top` rows of each ranking."""
        return write_page(path, render_audit_page(self.as_dict(top)))


def costs_of(sums: RowSums, counts: np.ndarray, names: list[str]) -> list[ClassCost]:
    """What the ties of each class cost it, from sums over all rows."""
    costs = []
    for k, name in enumerate(names):
        part = int(sums.tied_to[k].sum())
        rest = int(counts[k]) - part
        costs.append(
            ClassCost(
                name,
                int(counts[k]),
                part,
                names[int(sums.tied_to[k].argmax())] if part else None,
                float(sums.strength[k] / part) if part else None,
                float(sums.right[k] / counts[k]),
                float(sums.right_suspected[k] / part) if part else None,
                float((sums.right[k] - sums.right_suspected[k]) / rest) if rest else None,
            )
        )
    return costs
