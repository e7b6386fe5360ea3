"""Columns of a file as cells, the rows that a plan is learnt of, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from icda.data.own.encoding import Cells, Plan, cell_text
from icda.data.own.parquet import read_column
from icda.data.own.table import SPLIT_WORDS, listed
from icda.extras import require


def parquet_cells(path: Path, names: Sequence[str]) -> dict[str, Cells]:
    """Columns of a Parquet file: numbers as floats, NaN where one is missing; all else as texts."""
    kinds: Any = require("pyarrow.types", "parquet", "Parquet files")
    found: dict[str, Cells] = {}
    for name in names:
        column = read_column(path, name)
        if kinds.is_integer(column.type) or kinds.is_floating(column.type):
            found[name] = column.cast("float64").to_numpy().astype(np.float64)
        else:
            found[name] = [cell_text(value) for value in column.to_pylist()]
    return found


def training_rows(splits: np.ndarray | None, rows: int) -> np.ndarray:
    """Which rows are not of a test split (N,): levels and medians are learnt of these."""
    if splits is None:
        return np.ones(rows, dtype=bool)
    words = [str(value).strip().lower() for value in splits.tolist()]
    numbered = "2" in words  # as WILDS numbers them
    return np.array([SPLIT_WORDS.get(word) != "test" and not (numbered and word == "2") for word in words])


def encoding_notes(plan: Plan, dropped: Sequence[str]) -> list[str]:
    """What words, dates and empty cells became, for the user."""
    by_kind = {
        "Words, one feature for each value": [one.name for one in plan if one.kind == "words"],
        "Rare values pooled": [one.name for one in plan if one.pooled],
        "Dates, as days": [one.name for one in plan if one.kind == "date"],
        "Empty cells filled with the median, and marked": [one.name for one in plan if one.flagged],
        "Left out, since they hold one value, none, or too many different words": list(dropped),
    }
    return [f"{what}: {listed(names)}." for what, names in by_kind.items() if names]
