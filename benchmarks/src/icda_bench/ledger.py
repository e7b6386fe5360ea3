"""A table's ledger: read, and added to by several processes at once."""

from collections.abc import Mapping
from pathlib import Path

from icda.results.claims import claimed
from icda.results.ledger import read_rows, write_ledger

# What makes a run another run of the table rather than the same one again.
IDENTITY = ("tier", "task", "model", "method", "options", "epochs", "precision", "selection", "attributes", "seed")


def add_to_ledger(path: Path, row: Mapping[str, str]) -> None:
    """Put one row into a ledger, in the place of an earlier run of the same cell. Several processes may do so at once."""
    with claimed(path.parent):
        earlier = read_ledger(path) if path.exists() else []
        identity = [row[name] for name in IDENTITY]
        kept = [other for other in earlier if [other[name] for name in IDENTITY] != identity]
        write_ledger(path, [*kept, row])


def read_ledger(path: Path) -> list[dict[str, str]]:
    rows = read_rows(path, "task", "method", "seed", "tier")
    for row in rows:
        row["attributes"] = row.get("attributes") or "known"  # rows from before there was a choice
        row["precision"] = row.get("precision") or "no"
        row["groups"] = row.get("groups") or ""
    return rows
