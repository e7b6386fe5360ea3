"""Tables as people have them: words, truth values, dates and empty cells as numbers, the same at fit and at predict.

What is learnt of the training rows (levels, medians) is learnt by scikit-learn's transformers and kept as plain data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Literal

import numpy as np

from icda.data.missing import is_missing
from icda.data.own.table import listed
from icda.errors import InputError

MISSING = frozenset(("", "nan", "na", "n/a", "none", "null", "nat", "<na>", "?"))  # how tables write it, in lower case
TRUTH = {"true": "True", "false": "False"}
DAY = 86_400.0  # seconds
MOST_LEVELS = 50  # of a column; rarer ones are pooled
TOO_MANY = 0.2  # distinct values per row from which words are names or free text, and no levels
FEWEST = 10  # rows of a level, in tables of a thousand rows and more; a hundredth of the rows below
Kind = Literal["number", "date", "words"]
Cells = Sequence[str] | np.ndarray  # texts, empty where one is missing; or floats, NaN where one is missing


@dataclass(frozen=True)
class ColumnPlan:
    """How one column becomes features: a number with the median for missing ones, or one feature for each level."""

    name: str
    kind: Kind
    levels: tuple[str, ...] = ()  # of words; "" is the level of empty cells
    pooled: bool = False  # whether rare levels, and new ones later, share a feature
    fill: float = 0.0  # the median, for missing numbers and dates
    flagged: bool = False  # whether a feature says that the number was missing

    @property
    def features(self) -> list[str]:
        """The names of the features."""
        if self.kind != "words":
            return [self.name, *([f"{self.name} is missing"] if self.flagged else [])]
        named = [f"{self.name}={level or '(missing)'}" for level in self.levels]
        return [*named, *([f"{self.name}=(other)"] if self.pooled else [])]

    def encode(self, cells: Cells) -> np.ndarray:
        """Features (N, k) of a column's cells."""
        if self.kind != "words":
            values = values_of(self.kind, cells, self.name)
            missing = np.isnan(values)
            known = np.where(missing, self.fill, values)
            return np.stack([known, missing], 1) if self.flagged else known[:, None]
        places = {level: place for place, level in enumerate(self.levels)}
        encoded = np.zeros((len(cells), len(self.features)))
        other = len(self.levels) if self.pooled else None
        for row, cell in enumerate(words_of(cells)):
            place = places.get(cell, other)
            if place is not None:
                encoded[row, place] = 1
        return encoded


Plan = tuple[ColumnPlan, ...]


def plan_columns(table: Mapping[str, Cells], train: np.ndarray) -> tuple[Plan, list[str]]:
    """A plan for each column, learnt of the rows where `train` (N,) is true, and the columns that cannot be used."""
    plans = {name: _plan(name, cells, np.flatnonzero(train)) for name, cells in table.items()}
    return tuple(plan for plan in plans.values() if plan), [name for name, plan in plans.items() if plan is None]


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


def encode_table(table: Mapping[str, Cells], plan: Plan) -> np.ndarray:
    """Features (N, A) of a table that has the columns of the plan."""
    return np.concatenate([one.encode(table[one.name]) for one in plan], 1)


def feature_names(plan: Plan) -> tuple[str, ...]:
    return tuple(name for one in plan for name in one.features)


def plan_from_list(values: object, origin: str) -> Plan:
    """Checked: it may come from a stranger's file."""
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(Plan).validate_python(values)
    except ValueError as error:
        raise InputError(f"{origin}: the table's columns are not described as icda does it ({error}).") from error


def frame_cells(frame: Any, names: Sequence[str]) -> dict[str, Cells]:
    """Columns of a data frame: numbers as floats, all else as texts."""
    found: dict[str, Cells] = {}
    for name in names:
        column = frame[name]
        kind = getattr(column.dtype, "kind", "O")
        if kind in "iuf":
            found[name] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            found[name] = [cell_text(value) for value in column.tolist()]
    return found


def cell_text(value: object) -> str:
    """A value as a CSV would have it; empty where it is missing."""
    if is_missing(value):
        return ""
    return value.isoformat() if isinstance(value, datetime | date) else str(value)


def words_of(cells: Cells) -> list[str]:
    """Cells as levels: empty where missing, truth values in one spelling."""
    texts = (
        [cell_text(cell) for cell in cells.tolist()] if isinstance(cells, np.ndarray) else [c.strip() for c in cells]
    )
    lower = [text.lower() for text in texts]
    return ["" if low in MISSING else TRUTH.get(low, text) for text, low in zip(texts, lower, strict=True)]


def values_of(kind: Kind, cells: Cells, name: str) -> np.ndarray:
    """Numbers, or dates as days since 1970; NaN where one is missing."""
    if kind == "number" and isinstance(cells, np.ndarray):
        return cells.astype(np.float64)
    texts = [str(cell) for cell in cells] if kind == "number" else words_of(cells)
    parse, expected = (_number, "a number") if kind == "number" else (_days, "a date such as 2026-11-18")
    values = [parse(text) for text in texts]
    if None in values:
        raise InputError(f"column {name!r} holds {texts[values.index(None)]!r}, expected {expected}, or an empty cell.")
    return np.array(values, dtype=np.float64)


def _plan(name: str, cells: Cells, train: np.ndarray) -> ColumnPlan | None:
    from sklearn.impute import SimpleImputer

    kind = kind_of(cells)
    if kind == "words":
        return _plan_words(name, words_of(cells), train)
    values = values_of(kind, cells, name)[train]
    missing = np.isnan(values)
    if missing.all():
        return None
    median = SimpleImputer(strategy="median").fit(values[:, None]).statistics_[0]
    return ColumnPlan(name, kind, fill=float(median), flagged=bool(missing.any()))


def _plan_words(name: str, words: list[str], train: np.ndarray) -> ColumnPlan | None:
    from sklearn.preprocessing import OneHotEncoder

    known = np.array([words[row] for row in train], dtype=object)
    distinct = len(set(known.tolist()))
    if distinct < 2 or (distinct > MOST_LEVELS and distinct > TOO_MANY * len(known)):
        return None
    fewest = min(FEWEST, max(len(known) // 100, 1))
    encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=fewest, max_categories=MOST_LEVELS)
    encoder.fit(known[:, None])
    rare = encoder.infrequent_categories_[0]
    pooled = set() if rare is None else set(rare.tolist())
    levels = tuple(level for level in encoder.categories_[0].tolist() if level not in pooled)
    return ColumnPlan(name, "words", levels, bool(pooled))


def kind_of(cells: Cells) -> Kind:
    """Numbers where at least half of the filled cells are: the others must then be, too; dates where all are."""
    if isinstance(cells, np.ndarray):
        return "words" if cells.dtype == bool else "number"
    known = [cell for cell in words_of(cells) if cell]
    if known and 2 * sum(_number(cell) is not None for cell in known) >= len(known):
        return "number"
    return "date" if known and all(_days(cell) is not None for cell in known) else "words"


def _number(cell: str) -> float | None:
    if cell.strip().lower() in MISSING:
        return np.nan
    try:
        return float(cell)
    except ValueError:
        return None


def _days(cell: str) -> float | None:
    if not cell:
        return np.nan
    try:
        moment = datetime.fromisoformat(cell.replace("/", "-"))
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.timestamp() / DAY
