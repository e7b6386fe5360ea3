"""Run the table cell by cell into a CSV file; what is there is not run again."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch

from icda.results import write_atomically
from icda.training.environment import describe_environment
from icda.training.processes import process_pool
from icda_bench.studies.embeddings.methods import ROWS, RULES, Bench, Row
from icda_bench.studies.embeddings.sets import SETS


@dataclass(frozen=True)
class Cell:
    """One method on one set with one seed, judged by the groups of one attribute."""

    set: str
    attribute: str
    method: str
    knows: str
    seed: int
    accuracy: float
    worst_group_accuracy: float
    C: float
    selection: str
    selection_score: float
    seconds: float
    processor: str
    cores: int
    threads: int
    torch: str
    commit: str

    @property
    def key(self) -> tuple[str, str, int, str]:
        return self.set, self.method, int(self.seed), self.selection


def run_table(
    path: Path,
    root: Path,
    cache: Path,
    sets: Sequence[str] = tuple(SETS),
    methods: Sequence[str] = (),
    seeds: int = 5,
    jobs: int = 1,
    report: Callable[[str], None] = print,
) -> list[Cell]:
    """Fill `path` with one row per cell; each set and seed is one job on one thread."""
    rows = [row for row in ROWS if not methods or row.name in methods]
    done = read_cells(path)
    known = {cell.key for cell in done}
    pairs = [(name, seed) for seed in range(seeds) for name in sets]
    for name in sets:  # embeddings are computed once, before jobs could compute them side by side
        SETS[name](root, 0, cache)
    with process_pool(jobs) as pool:
        futures = []
        for name, seed in pairs:
            missing = [row.name for row in rows if not _keys(name, row, seed) <= known]
            if missing:
                futures.append(pool.submit(run_cells, name, seed, missing, root, cache))
        for future in as_completed(futures):
            done = sorted([*done, *(cell for cell in future.result() if cell.key not in known)], key=_order)
            write_cells(path, done)
            report(f"{len(done)} rows in {path}")
    return done


def run_cells(name: str, seed: int, methods: Sequence[str], root: Path, cache: Path) -> list[Cell]:
    """All cells of one set and seed."""
    torch.set_num_threads(1)
    bench = Bench(SETS[name](root, seed, cache), seed)
    environment = describe_environment()
    machine: dict[str, Any] = {key: environment[key] for key in ("processor", "cores", "threads", "torch", "commit")}
    cells = []
    for row in (row for row in ROWS if row.name in methods):
        for attribute in bench.attributes(row):
            started = time.perf_counter()
            chosen = bench.fit(row, attribute)
            seconds = round(time.perf_counter() - started, 2)
            for judged in bench.test_attributes if attribute is None else (attribute,):
                for rule, fitted in chosen.items():
                    accuracy, worst = bench.judge(fitted.model, judged)
                    figures = (round(accuracy, 5), round(worst, 5), fitted.C, rule, round(fitted.scores[rule], 5))
                    cells.append(Cell(name, judged, row.name, row.knows, seed, *figures, seconds, **machine))
    return cells


def _keys(name: str, row: Row, seed: int) -> set[tuple[str, str, int, str]]:
    return {(name, row.name, seed, rule) for rule in RULES[row.knows]}


def read_cells(path: Path) -> list[Cell]:
    if not path.exists():
        return []
    kinds = {field.name: {"int": int, "float": float}.get(str(field.type), str) for field in fields(Cell)}
    with path.open(newline="") as file:
        return [Cell(**{key: kinds[key](value) for key, value in row.items()}) for row in csv.DictReader(file)]


def write_cells(path: Path, cells: Sequence[Cell]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Cell)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(cell) for cell in cells)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue().encode())


def _order(cell: Cell) -> tuple[int, str, int, str, int]:
    methods = [row.name for row in ROWS]
    return list(SETS).index(cell.set), cell.attribute, methods.index(cell.method), cell.selection, cell.seed
