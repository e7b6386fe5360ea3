"""Tables of what was measured on embeddings: worst groups, the audit, fit times."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from icda.bench.markdown import markdown, spread
from icda.bench.studies.embeddings.methods import ROWS
from icda.bench.studies.embeddings.run import Cell, read_cells

COLUMNS = {
    ("waterbirds", "place"): "Waterbirds, place",
    ("adult", "sex"): "Adult, sex",
    ("adult", "race"): "Adult, race",
    ("compas", "sex"): "COMPAS, sex",
    ("compas", "race"): "COMPAS, race",
    ("cad_imdb", "none"): "IMDb, rewritten",
}
HEADLINE_ROWS = ("ce", "la", "icda", "ce_contrast", "ce_prior", "ce_groups", "dfr")
HEADLINE_COLUMNS = (("waterbirds", "place"), ("adult", "race"), ("compas", "race"))
FIT_TIME = {
    "data": "data",
    "samples": "N",
    "features": "A",
    "classes": "C",
    "loss": "loss",
    "seconds": "seconds",
    "reference_seconds": "LogisticRegression, seconds",
    "ratio": "ratio",
    "iterations": "iterations",
    "reference_iterations": "its iterations",
}
LARGE_FIT = {
    "loss": "loss",
    "samples": "N",
    "features": "A",
    "classes": "C",
    "file_gib": "file, GiB",
    "peak_mib": "peak memory, MiB",
    "seconds": "seconds, one thread",
}
FAULTS = {
    "kind": "fault",
    "faults": "number",
    "detail": "which",
    "refused": "ended with a sentence",
    "different": "different after resume",
    "missing": "reports missing",
    "mixed": "results mixed",
    "obscure": "tracebacks",
    "scraps": "files left over",
}
KNOWS = {"labels": "labels", "groups": "groups", "metadata": "metadata"}


def embeddings_table(
    path: Path,
    figure: str = "worst_group_accuracy",
    only: Sequence[str] = (),
    places: Sequence[tuple[str, str]] = tuple(COLUMNS),
) -> str:
    """Mean ± standard deviation over seeds, in per cent; for film reviews the accuracy on rewritten ones."""
    cells = read_cells(path)
    body = []
    for row in (row for row in ROWS if not only or row.name in only):
        if any(cell.method == row.name for cell in cells):
            figures = [_column(cells, row.name, place, figure) for place in places]
            body.append([row.title, KNOWS[row.knows], *figures])
    return markdown(["head", "given", *(COLUMNS[place] for place in places)], body)


def _column(cells: list[Cell], method: str, place: tuple[str, str], figure: str) -> str:
    figure = "accuracy" if place[0] == "cad_imdb" else figure
    mine = [cell for cell in cells if (cell.set, cell.attribute) == place and cell.method == method]
    return spread([100 * float(getattr(cell, figure)) for cell in mine], digits=1)


def audit_table(path: Path) -> str:
    """AUROC of each score for what is sought, over seeds."""
    rows = _read(path)
    places = list(dict.fromkeys((row["task"], row["part"], row["score"]) for row in rows))
    body = []
    for place in places:
        mine = [row for row in rows if (row["task"], row["part"], row["score"]) == place]
        body.append([*place, spread([float(row["auroc"]) for row in mine], digits=3)])
    return markdown(["data", "sought in", "score", "AUROC"], body)


def csv_table(names: dict[str, str]) -> Callable[[Path], str]:
    """A table of some columns of a CSV file, under other titles."""

    def table(path: Path) -> str:
        return markdown(list(names.values()), [[row[name] for name in names] for row in _read(path)])

    return table


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
