"""Run the table cell by cell into a CSV file; what is there is not run again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import torch

from icda.data.registry import data_root
from icda.engines import WorkerDiedError, apart
from icda.settings import check_names
from icda_bench.markdown import columns, markdown, percent
from icda_bench.options import Root, all_cores
from icda_bench.rows import Row, machine_columns, read_table, write_rows
from icda_bench.studies.embeddings.methods import BY_ACCURACY, BY_CLASS, ROWS, RULES, Bench
from icda_bench.studies.embeddings.sets import SETS

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
KEY = columns("set", "method", "seed", "selection")
GIVEN = {BY_ACCURACY: "labels, C by accuracy", BY_CLASS: "labels, C by worst class"}


@dataclass
class Arguments:
    """Fit every loss and variant on features of Waterbirds, Adult, COMPAS and film reviews; finished cells are kept."""

    sets: tuple[str, ...] = ()
    """Only these sets: waterbirds, adult, compas, cad_imdb."""
    methods: tuple[str, ...] = ()
    """Only these rows of the table."""
    seeds: int = 5
    """Seeds of each row: folds, splits where there is no official one, and what is learned."""
    jobs: int = field(default_factory=all_cores)
    """Sets and seeds at the same time, each on one core."""
    root: Root = None
    cache: Path = Path("runs/embeddings")
    """Folder for embeddings of texts, computed once."""
    out: Path = Path("runs/embeddings/embeddings.csv")
    """CSV file to fill (benchmarks/results/embeddings.csv is ours)."""


def run_table(options: Arguments) -> list[Row]:
    """Fill the file with one row per cell; each set and seed is one job on one thread."""
    root, cache, path, sets = data_root(options.root), options.cache, options.out, options.sets or tuple(SETS)
    rows = [row for row in ROWS if not options.methods or row.name in options.methods]
    done: list[Row] = [*read_table(path)]
    known = set(map(KEY, done))
    for name in sets:  # embeddings are computed once, before jobs could compute them side by side
        SETS[name](root, 0, cache)
    asked = []
    for seed, name in product(range(options.seeds), sets):
        missing = [
            row.name for row in rows if any((name, row.name, str(seed), rule) not in known for rule in RULES[row.knows])
        ]
        if missing:
            asked.append((name, seed, missing, root, cache))
    for _, cells in apart(run_cells, asked, options.jobs):
        if isinstance(cells, WorkerDiedError):
            raise cells
        done = sorted([*done, *(cell for cell in cells if KEY(cell) not in known)], key=_order)
        write_rows(path, done)
        print(f"{len(done)} rows in {path}")
    return done


def run_cells(asked: tuple[str, int, Sequence[str], Path, Path]) -> list[Row]:
    """All cells of one set and seed: a method judged by the groups of one attribute each."""
    name, seed, methods, root, cache = asked
    torch.set_num_threads(1)
    bench = Bench(SETS[name](root, seed, cache), seed)
    cells: list[Row] = []
    machine = machine_columns()
    for row in (row for row in ROWS if row.name in methods):
        for attribute in bench.attributes(row):
            started = time.perf_counter()
            chosen = bench.fit(row, attribute)
            seconds = round(time.perf_counter() - started, 2)
            for judged in tuple(bench.data.test.attributes) if attribute is None else (attribute,):
                for rule, fitted in chosen.items():
                    accuracy, worst = bench.judge(fitted.model, judged)
                    place = {"set": name, "attribute": judged, "method": row.name, "knows": row.knows, "seed": seed}
                    figures = {"accuracy": round(accuracy, 5), "worst_group_accuracy": round(worst, 5), "C": fitted.C}
                    choice = {"selection": rule, "selection_score": round(fitted.scores[rule], 5), "seconds": seconds}
                    cells.append({**place, **figures, **choice, **machine})
    return cells


def _order(cell: Row) -> tuple[int, str, int, str, int]:
    methods = [row.name for row in ROWS]
    place = list(SETS).index(cell["set"]), cell["attribute"], methods.index(cell["method"])
    return *place, cell["selection"], int(cell["seed"])


def embeddings_table(
    cells: Sequence[Row],
    figure: str = "worst_group_accuracy",
    only: Sequence[str] = (),
    places: Sequence[tuple[str, str]] = tuple(COLUMNS),
    left_out: str = "",
) -> str:
    """Mean ± standard deviation over seeds, in per cent; for film reviews the accuracy on rewritten ones.

    A head that is given only labels has a line for each rule that C was chosen by, but for the one that is `left_out`.
    """
    body = []
    for row in (row for row in ROWS if not only or row.name in only):
        for rule in (rule for rule in RULES[row.knows] if rule != left_out):
            mine = [cell for cell in cells if (cell["method"], cell["selection"]) == (row.name, rule)]
            if mine:
                given = row.knows if left_out else GIVEN.get(rule, row.knows)
                body.append([row.title, given, *(_column(mine, place, figure) for place in places)])
    return markdown(["head", "given", *(COLUMNS[place] for place in places)], body)


def _column(cells: list[Row], place: tuple[str, str], figure: str) -> str:
    figure = "accuracy" if place[0] == "cad_imdb" else figure
    return percent([cell for cell in cells if (cell["set"], cell["attribute"]) == place], figure)


def run(options: Arguments) -> None:
    check_names(options.sets, SETS, "icda bench embeddings", "set")
    check_names(options.methods, [row.name for row in ROWS], "icda bench embeddings", "method")
    run_table(options)
