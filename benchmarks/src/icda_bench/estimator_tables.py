"""Tables of what was measured on embeddings: worst groups, the audit, fit times."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

from icda_bench.markdown import markdown, spread
from icda_bench.studies.embeddings.methods import BY_ACCURACY, BY_CLASS, ROWS, RULES
from icda_bench.studies.embeddings.run import Cell, read_cells

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
CORES = {
    "task": "task",
    "data": "data",
    "processes": "processes",
    "threads_each": "threads each",
    "items": "items",
    "seconds": "seconds",
    "processor_seconds": "processor seconds",
    "per_second": "items per second",
    "speedup": "speed-up",
}
BLOCK_FIT = {
    "rows": "rows",
    "loss": "loss",
    "where": "where",
    "workers": "workers",
    "killed": "workers killed",
    "passes": "passes",
    "seconds": "seconds",
    "predicted_seconds": "seconds by the model",
    "peak_mib": "peak MiB of a process",
    "difference": "difference to one process",
}
KNOWS = {"labels": "labels", "groups": "groups", "metadata": "metadata"}
GIVEN = {BY_ACCURACY: "labels, C by accuracy", BY_CLASS: "labels, C by worst class"}


def embeddings_table(
    path: Path,
    figure: str = "worst_group_accuracy",
    only: Sequence[str] = (),
    places: Sequence[tuple[str, str]] = tuple(COLUMNS),
    left_out: str = "",
) -> str:
    """Mean ± standard deviation over seeds, in per cent; for film reviews the accuracy on rewritten ones.

    A head that is given only labels has a line for each rule that C was chosen by, but for the one that is `left_out`.
    """
    cells = read_cells(path)
    body = []
    for row in (row for row in ROWS if not only or row.name in only):
        for rule in (rule for rule in RULES[row.knows] if rule != left_out):
            mine = [cell for cell in cells if (cell.method, cell.selection) == (row.name, rule)]
            if mine:
                given = KNOWS[row.knows] if left_out else GIVEN.get(rule, KNOWS[row.knows])
                body.append([row.title, given, *(_column(mine, place, figure) for place in places)])
    return markdown(["head", "given", *(COLUMNS[place] for place in places)], body)


def _column(cells: list[Cell], place: tuple[str, str], figure: str) -> str:
    figure = "accuracy" if place[0] == "cad_imdb" else figure
    mine = [cell for cell in cells if (cell.set, cell.attribute) == place]
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
