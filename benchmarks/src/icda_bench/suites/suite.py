"""A table of the paper as data: columns (tasks), rows (methods), the paper's figures, and a recipe a tier.

The files lie beside this one. A suite says what is to be run and what the paper says came out; how cells are run is
the runner's business, what the figures mean is `verdict`'s.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple, get_args

import yaml
from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from icda.errors import InputError
from icda.registry import UnknownNameError
from icda.training import TrainConfig
from icda.training.config import config_from_dict
from icda_bench.markdown import spread

TierName = Literal["smoke", "cpu", "long", "paper"]
TIERS: tuple[TierName, ...] = get_args(TierName)
SUITES = (
    "table2",
    "table4",
    "table6",
    "table7",
    "table8",
    "table9",
    "imagenet-lt",
    "ablation",
    "sensitivity",
    "gain",
    "shortcut",
    "text",
    "noise",
    "human-noise",
)
ONLY_KNOWN = ConfigDict(extra="forbid")
NOTHING = "nothing"  # what a column is like that no column of the paper is like


@dataclass(frozen=True, config=ONLY_KNOWN)
class Place:
    """Where and how a column is run in one tier: a task, the one that methods with metadata get, and training settings.

    `metadata_settings` come on top for methods with metadata. `rows` are those that are run here, all if it is empty. With
    `folds` a run is one of each of the tasks `task`_fold_1, ..., which together test every sample once. `row_seeds` gives
    rows another number of seeds, `row_options` options that belong to the tier's length of training. `cell_seconds` is what
    a cell of cross entropy takes on one core: the cost said before the ledger knows any.
    """

    task: str
    metadata_task: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    metadata_settings: dict[str, Any] = field(default_factory=dict)
    rows: tuple[str, ...] = ()
    folds: int | None = None
    cell_seconds: float | None = None
    seeds: int = 1
    row_seeds: dict[str, int] = field(default_factory=dict)
    row_options: dict[str, dict[str, Any]] = field(default_factory=dict)

    def fold_numbers(self) -> Sequence[int]:
        return range(1, (self.folds or 1) + 1)


@dataclass(frozen=True, config=ONLY_KNOWN)
class SuiteRow:
    """One method of the paper's table. Without a `method` its figures are only cited.

    `metadata` puts a row into the table's second group, meta-learning: it gets the task with metadata and the schedule
    that goes with it. `paper` holds the paper's figures in the order of the columns, None where it has none. `below`
    names a row that the paper puts above this one where it gives no figures. `own` marks ICDA and Meta-ICDA, which are
    also compared with their best rival. `settings` are training settings that belong to the row in every tier,
    `column_settings` those that it has in one column besides.
    """

    key: str
    title: str
    method: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    column_options: dict[str, dict[str, Any]] = field(default_factory=dict)
    metadata: bool = False
    paper: tuple[float | None, ...] = ()
    own: bool = False
    below: str | None = None
    skip: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    column_settings: dict[str, dict[str, Any]] = field(default_factory=dict)

    def options_in(self, column: str) -> dict[str, Any]:
        return {**self.options, **self.column_options.get(column, {})}


@dataclass(frozen=True, config=ONLY_KNOWN)
class Column:
    """One column of the paper's table, under its name there: a task, and which figure of it is shown.

    Two columns may show two figures of the same runs. `metric` is the suite's own where it is not given. `like` names a
    column of the paper whose figures stand beside this one, which the paper does not have; "nothing" if none is like it.
    `absent` says why a column has neither tier `cpu` nor `long`: its figures are cited, and our machine cannot run it.
    """

    key: str
    title: str
    places: dict[str, Place]
    metric: str | None = None
    like: str | None = None
    absent: str | None = None

    def has(self, row: SuiteRow, tier: str) -> bool:
        """Whether a row has a cell here; of a column that is not run in the tier only what it skips is left out."""
        place = self.places.get(tier)
        chosen = place is None or not place.rows or row.key in place.rows or row.method is None
        return self.key not in row.skip and chosen


@dataclass(frozen=True, config=ONLY_KNOWN)
class Suite:
    """A table: its columns, its rows, its tiers, and how its figures are read."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[SuiteRow, ...]
    tiers: tuple[str, ...]
    reference: str
    metric: str = "accuracy"
    shows: Literal["accuracy", "error"] = "accuracy"
    notes: tuple[str, ...] = ()

    def row(self, key: str) -> SuiteRow:
        return next(row for row in self.rows if row.key == key)

    def paper_columns(self) -> list[Column]:
        """The columns that the paper has, in its order."""
        return [column for column in self.columns if column.like is None]

    def column(self, key: str) -> Column:
        return next(column for column in self.columns if column.key == key)

    def metric_of(self, column: Column) -> str:
        return column.metric or self.metric

    def paper_points(self, row: SuiteRow, column: Column) -> float | None:
        """The paper's figure as accuracy in per cent, so that more is better whatever the paper prints."""
        if column.like == NOTHING:
            return None
        place = [printed.key for printed in self.paper_columns()].index(column.like or column.key)
        value = row.paper[place] if place < len(row.paper) else None
        return None if value is None else self.printed(value)

    def printed(self, points: float) -> float:
        """Accuracy in per cent as the paper prints it, and the way back."""
        return 100 - points if self.shows == "error" else points

    def spread(self, values: Sequence[float]) -> str:
        """Accuracies over seeds as the paper prints them."""
        return spread([self.printed(value) for value in values], digits=1)


class Cell(NamedTuple):
    """One training run of a suite."""

    suite: str
    tier: str
    column: str
    row: str
    config: TrainConfig

    def label(self) -> str:
        return f"{self.config.task}, {self.row}, seed {self.config.seed}"


@cache
def load_suite(name: str) -> Suite:
    """Read a suite by its name.

    >>> load_suite("table4").row("icda").paper[:2]
    (91.81, 88.76)
    """
    text = files("icda_bench.suites").joinpath(f"{name}.yaml").read_text()
    return parse_suite(name, yaml.safe_load(text))


def parse_suite(name: str, values: dict[str, Any]) -> Suite:
    """A suite from the content of its file; a test holds that the parts of ours fit each other."""
    tiers = values["tiers"]
    columns = [
        {**{name: part for name, part in entry.items() if name not in TIERS}, "key": key}
        | {"places": {tier: _place(entry[tier], **tiers[tier]) for tier in TIERS if tier in entry}}
        for key, entry in values["columns"].items()
    ]
    rows = [{"key": entry.get("method"), **entry} for entry in values["rows"]]
    suite = {**values, "name": name, "columns": columns, "rows": rows, "tiers": tuple(tiers)}
    return TypeAdapter(Suite).validate_python(suite)


def _place(
    entry: dict[str, Any], recipe: dict[str, Any], metadata_recipe: dict[str, Any] | None = None, **tier: Any
) -> dict[str, Any]:
    """What a place says itself, before what its tier says of all columns."""
    own = {name: {**tier.get(name, {}), **entry.get(name, {})} for name in ("row_seeds", "row_options")}
    settings = {"settings": {**recipe, **entry.get("settings", {})}, "metadata_settings": metadata_recipe or {}}
    return {**tier, **entry, **own, **settings}


def cells(
    suite: Suite,
    tier: str,
    out: str,
    methods: Sequence[str] = (),
    tasks: Sequence[str] = (),
    seeds: int | None = None,
    first_seed: int = 0,
) -> list[Cell]:
    """The runs of a suite, the first seed of everything first: a table is soon whole and then grows more certain.

    `methods` are rows or method names, `tasks` columns or task names.
    """
    if tier not in suite.tiers:
        raise InputError(f"suite {suite.name!r} has no tier {tier!r}: choose from {', '.join(suite.tiers)}.")
    rows = _chosen_rows(suite, methods)
    places = _chosen_places(suite, tier, tasks)
    chosen = []
    for column, place in places:
        for row in rows:
            count = seeds or place.row_seeds.get(row.key, place.seeds) if column.has(row, tier) else 0
            for seed in range(first_seed, first_seed + count):
                chosen += [_cell(suite, tier, column, row, seed, fold, out) for fold in place.fold_numbers()]
    once: dict[str, Cell] = {}
    for cell in chosen:
        once.setdefault(cell.config.out, cell)  # two columns may show figures of the same run
    return sorted(once.values(), key=lambda cell: cell.config.seed)  # stable: columns and rows keep their order


def cell_config(suite: Suite, tier: str, column: Column, row: SuiteRow, seed: int = 0, fold: int = 1) -> TrainConfig:
    """The settings of one cell, without a folder of its own."""
    assert row.method is not None, f"{row.title} is cited, not run"
    place = column.places[tier]
    settings = {**place.settings, **(place.metadata_settings if row.metadata else {})}
    settings |= {**row.settings, **row.column_settings.get(column.key, {})}
    task = place.metadata_task if row.metadata and place.metadata_task else place.task
    task += f"_fold_{fold}" if place.folds else ""
    options = {**row.options_in(column.key), **place.row_options.get(row.key, {})}
    settings |= {"task": task, "method": row.method, "options": options, "seed": seed}
    return config_from_dict(settings, f"suite {suite.name}, tier {tier}")


def _cell(suite: Suite, tier: str, column: Column, row: SuiteRow, seed: int, fold: int, out: str) -> Cell:
    config = cell_config(suite, tier, column, row, seed, fold)
    # The hash in the folder's name: a cell that two tables share is run once, a changed recipe starts again.
    folder = f"{out}/{tier}/{config.task}/{config.method}/seed{seed}-{config.hash()}"
    return Cell(suite.name, tier, column.key, row.key, replace(config, out=folder))


def _chosen_rows(suite: Suite, methods: Sequence[str]) -> list[SuiteRow]:
    runnable = [row for row in suite.rows if row.method is not None]
    if not methods:
        return runnable
    names = {name: row for row in runnable for name in (row.key, row.method) if name is not None}
    for name in methods:
        if name not in names:
            cited = [row.key for row in suite.rows if row.method is None]
            why = " It is cited from the paper, not run." if name in cited else ""
            raise UnknownNameError(f"{suite.name} has no method {name!r}.{why} Known: {', '.join(names)}.")
    return [row for row in runnable if row.key in methods or row.method in methods]


def _chosen_places(suite: Suite, tier: str, tasks: Sequence[str]) -> list[tuple[Column, Place]]:
    there = [(column, column.places[tier]) for column in suite.columns if tier in column.places]
    if not tasks:
        return there
    names = [name for column, place in there for name in (column.key, place.task)]
    for name in tasks:
        if name not in names:
            raise UnknownNameError(f"{suite.name} has no task {name!r} in tier {tier}. Known: {', '.join(names)}.")
    return [(column, place) for column, place in there if column.key in tasks or place.task in tasks]
