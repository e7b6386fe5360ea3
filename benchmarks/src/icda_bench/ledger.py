"""A table's ledger: read, and added to by several processes at once."""

from collections.abc import Mapping
from pathlib import Path

from icda.results.claims import claimed
from icda.results.ledger import options_text, read_rows, write_ledger
from icda.training import TrainConfig

# What makes a run another cell of the table; with tier and seed, another run rather than the same one again.
CELL = ("task", "model", "method", "options", "epochs", "precision", "selection", "attributes")
IDENTITY = ("tier", *CELL, "seed")


def cell_columns(config: TrainConfig) -> dict[str, str]:
    """The columns `CELL` of a run with these settings."""
    return {name: str(getattr(config, name) or "") for name in CELL} | {"options": options_text(config.options)}


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
        row["code"] = row.get("code") or ""
    return rows
