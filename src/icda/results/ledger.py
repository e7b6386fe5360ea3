"""Results as rows of a CSV file: what was run, on what, and what came out."""

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from icda.errors import InputError
from icda.results import RunResult, write_atomically

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
HOW = ("split", "selection", "attributes", "model", "epochs", "precision", "options", "seconds")
WHERE = ("config_hash", "data_hash", "commit", "code", "machine", "torch")
COLUMNS = ("task", "method", "seed", "tier", *METRICS, "train_accuracy", "groups", *HOW, *WHERE)


def to_row(result: Mapping[str, Any], tier: str) -> dict[str, str]:
    """One line of the ledger from one result; a figure that was not measured is blank."""
    result = RunResult.from_dict(result)
    config, environment = result.config or {}, result.environment or {}
    metrics = {name: result.metric(name) for name in METRICS}
    metrics["train_accuracy"] = result.history[-1].train_accuracy if result.history else None
    row = {
        **{name: result[name] for name in ("task", "method", "seed", "split", "selection", "model", "config_hash")},
        **{name: "" if value is None else f"{value:.6f}" for name, value in metrics.items()},
        "tier": tier,
        "groups": _group_counts(result),
        "attributes": config.get("attributes", "known"),
        "epochs": config["epochs"],
        "precision": config.get("precision", "no"),
        "options": options_text(config["options"]),
        "seconds": result.seconds,
        "data_hash": (result.data_hash or "")[:12],
        "commit": environment["commit"] or "",
        "code": environment.get("code") or "",
        "machine": f"{environment['processor']}, {environment['cores']} cores",
        "torch": environment["torch"],
    }
    return {name: str(row[name]) for name in COLUMNS}


def _group_counts(result: RunResult) -> str:
    """Samples of each group that were right, of how many: "3/16 880/890"; blank without groups."""
    accuracies = (result.metrics or {}).get("per_group_accuracy")
    if not isinstance(accuracies, Mapping) or not result.group_samples:
        return ""
    counted = zip(accuracies.values(), result.group_samples, strict=True)
    return " ".join(f"{round((share or 0) * size)}/{size}" for share, size in counted)


def options_text(options: Mapping[str, Any]) -> str:
    """Options of a method as the ledger writes them."""
    return " ".join(f"{name}={value}" for name, value in sorted(options.items()))


def write_ledger(path: Path, rows: Iterable[Mapping[str, str]]) -> None:
    """Write rows sorted by tier, task, method and seed, so that a rerun changes only what changed. Atomic."""
    ordered = sorted(
        rows, key=lambda row: (row["tier"], row["task"], row["model"], row["method"], row["options"], int(row["seed"]))
    )
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(ordered)
    write_atomically(path, text.getvalue().encode(), new_folder=True)


def read_rows(path: Path, *needed: str) -> list[dict[str, str]]:
    """The rows of a ledger that has some columns."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows = []
            for row in reader:
                if None in row or None in row.values():
                    wanted = len(reader.fieldnames or ())
                    raise InputError(f"{path}, line {reader.line_num}: a row needs {wanted} cells, as its header has.")
                rows.append(row)
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as a ledger of runs: {error}.") from error
    if rows and (missing := [name for name in needed if name not in rows[0]]):
        lacking = f"has no column {' and '.join(missing)}: its columns are {', '.join(rows[0])}"
        raise InputError(f"{path} is no ledger of runs, it {lacking}.")
    return rows
