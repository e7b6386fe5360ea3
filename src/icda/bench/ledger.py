"""Results as rows of a CSV file: what was run, on what, and what came out."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

METRICS = (
    "accuracy",
    "balanced_accuracy",
    "worst_class_accuracy",
    "worst_group_accuracy",
    "train_weighted_accuracy",
    "macro_precision",
    "calibration_error",
    "nll",
)
COLUMNS = (
    "task",
    "method",
    "seed",
    "tier",
    *METRICS,
    "split",
    "selection",
    "model",
    "epochs",
    "options",
    "seconds",
    "config_hash",
    "data_hash",
    "commit",
    "machine",
    "torch",
)


def to_row(result: Mapping[str, Any], tier: str) -> dict[str, str]:
    """One line of the ledger from one result; a figure that was not measured is blank."""
    config, environment = result["config"], result["environment"]
    metrics = {name: result["metrics"].get(name) for name in METRICS}
    options = " ".join(f"{name}={value}" for name, value in sorted(config["options"].items()))
    row = {
        **{name: result[name] for name in ("task", "method", "seed", "split", "selection", "model", "config_hash")},
        **{name: "" if value is None else f"{value:.6f}" for name, value in metrics.items()},
        "tier": tier,
        "epochs": config["epochs"],
        "options": options,
        "seconds": result["seconds"],
        "data_hash": result["data_hash"][:12],
        "commit": environment["commit"] or "",
        "machine": f"{environment['processor']}, {environment['cores']} cores",
        "torch": environment["torch"],
    }
    return {name: str(row[name]) for name in COLUMNS}


def write_ledger(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    """Write rows sorted by task, method and seed, so that a rerun changes only what changed."""
    ordered = sorted(rows, key=lambda row: (row["task"], row["method"], row["options"], int(row["seed"])))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(ordered)


def read_ledger(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
