"""What the committed runs cost: hours, seeds and machines of every ledger."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from icda.bench.ledger import read_ledger
from icda.bench.markdown import markdown
from icda.bench.suites.suite import SUITES


def ledger_cost_table(results: Path) -> str:
    """One line per table and tier: cells, seeds of a cell, hours of all cells one after another, machine, torch.

    Hours are those that passed while cells were trained, often beside other work: more than an idle core needs.
    """
    body = []
    for name in SUITES:
        path = results / f"{name}.csv"
        rows = read_ledger(path) if path.exists() else []
        for tier in sorted({row["tier"] for row in rows}):
            body.append([name, tier, *_cost([row for row in rows if row["tier"] == tier])])
    return markdown(["table", "tier", "runs", "seeds", "hours, one core", "machine", "torch"], body)


def _cost(rows: list[dict[str, str]]) -> list[str]:
    names = ("task", "model", "method", "options", "epochs", "precision", "selection", "attributes")
    seeds = Counter(tuple(row[name] for name in names) for row in rows)
    least, most = min(seeds.values()), max(seeds.values())
    hours = sum(float(row["seconds"]) for row in rows) / 3600
    machines, versions = (", ".join(sorted({row[name] for row in rows})) for name in ("machine", "torch"))
    return [str(len(rows)), str(most) if least == most else f"{least} to {most}", f"{hours:.1f}", machines, versions]
