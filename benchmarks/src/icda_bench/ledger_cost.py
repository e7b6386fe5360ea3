"""What the committed runs cost: hours, seeds and machines of every ledger."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from icda.results.ledger import read_ledger
from icda_bench.markdown import markdown
from icda_bench.suites.suite import SUITES

CELL = ("task", "model", "method", "options", "epochs", "precision", "selection", "attributes")
STUDIES = {  # of heads on features: what makes a row another cell rather than another seed of the same one
    "embeddings": ("set", "attribute", "method", "selection"),
    "tail_features": ("set", "method"),
}
TITLES = ["table", "tier", "runs", "seeds", "hours, one core", "machine", "torch"]


def ledger_cost_table(results: Path) -> str:
    """One line per table and tier: cells, seeds of a cell, hours of all cells one after another, machine, torch.

    Hours are those that passed while cells were trained, often beside other work: more than an idle core needs.
    """
    body = []
    for name in SUITES:
        path = results / f"{name}.csv"
        rows = read_ledger(path) if path.exists() else []
        for tier in sorted({row["tier"] for row in rows}):
            body.append([name, tier, *_cost([row for row in rows if row["tier"] == tier], CELL)])
    for name, cell in STUDIES.items():
        path = results / f"{name}.csv"
        if path.exists():
            body.append([name.replace("_", "-"), "", *_cost(_study_rows(path), cell)])
    return markdown(TITLES, body)


def _study_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [{**row, "machine": f"{row['processor']}, {row['cores']} cores"} for row in csv.DictReader(file)]


def _cost(rows: Sequence[Mapping[str, str]], cell: Iterable[str]) -> list[str]:
    names = tuple(cell)
    seeds = Counter(tuple(row[name] for name in names) for row in rows)
    least, most = min(seeds.values()), max(seeds.values())
    hours = sum(float(row["seconds"]) for row in rows) / 3600
    machines, versions = (", ".join(sorted({row[name] for row in rows})) for name in ("machine", "torch"))
    return [str(len(rows)), str(most) if least == most else f"{least} to {most}", f"{hours:.1f}", machines, versions]
