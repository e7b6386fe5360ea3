"""Run the proving ground case by case into a CSV file; what is there is not run again."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icda.auditing.evidence import as_numbers, gather_evidence, make_sketch
from icda.auditing.inputs import standardise
from icda.training.checkpoint import write_atomically
from icda_bench.studies.verdicts.cases import Case, Plan, plant
from icda_bench.studies.verdicts.fresh import fresh_plans
from icda_bench.studies.verdicts.methods import fit_rows
from icda_bench.studies.verdicts.plans import SYNTHETIC, plans_of
from icda_bench.studies.verdicts.pools import POOLS, Pool, load_pool
from icda_bench.studies.verdicts.synthetic import gaussian_pool

ALL = (*POOLS, *SYNTHETIC)
Row = dict[str, Any]


def run_evidence(
    path: Path,
    root: Path | None,
    cache: Path,
    pools: Sequence[str] = ALL,
    most: int | None = None,
    report: Callable[[str], None] = print,
) -> list[Row]:
    """The evidence of every case, one row each; kinds come before pools, so that a stopped run has seen all of them."""
    return run_rows(path, cases(root, cache, pools, most), evidence_row, report)


def run_fresh(
    path: Path,
    root: Path | None,
    cache: Path,
    pools: Sequence[str] = ALL,
    count: int = 40,
    report: Callable[[str], None] = print,
) -> list[Row]:
    """The evidence of `count` cases of each pool that are drawn at random and that no limit has been set on."""
    plans = {name: fresh_plans(name, count) for name in pools}
    return run_rows(path, planted_cases(root, cache, plans), evidence_row, report)


def run_treated(
    path: Path,
    root: Path | None,
    cache: Path,
    pools: Sequence[str] = ALL,
    most: int | None = None,
    report: Callable[[str], None] = print,
) -> list[Row]:
    """What RobustClassifier and its rivals reach on every case, one row each."""
    return run_rows(path, cases(root, cache, pools, most), fit_rows, report)


def run_rows(
    path: Path, planted: Iterator[Case], measure: Callable[[Case], Row], report: Callable[[str], None]
) -> list[Row]:
    """Measure each case that is not in the file, and write the file after each."""
    done = read_rows(path)
    known = {(row["pool"], int(row["seed"])) for row in done}
    for case in planted:
        if (case.plan.pool, case.plan.seed) in known:
            continue
        row = {**asdict(case.plan), "kind": case.plan.kind, **measure(case)}
        done.append(row)
        write_rows(path, done)
        report(f"{len(done)}: {row['pool']} {row['kind']}")
    return done


def cases(root: Path | None, cache: Path, pools: Sequence[str], most: int | None = None) -> Iterator[Case]:
    """All cases of the pools, or the first `most` of each: the first of every pool, then the second, and so on."""
    return planted_cases(root, cache, {name: plans_of(name)[:most] for name in pools})


def planted_cases(root: Path | None, cache: Path, plans: dict[str, list[Plan]]) -> Iterator[Case]:
    """The first case of every pool, then the second, and so on."""
    loaded: dict[str, Pool] = {}
    for number in range(max(map(len, plans.values()))):
        for name in plans:
            if number < len(plans[name]):
                if name not in loaded:
                    loaded[name] = get_pool(name, root, cache)
                yield plant(loaded[name], plans[name][number])


def get_pool(name: str, root: Path | None, cache: Path) -> Pool:
    """A real pool, or a synthetic one by the number at the end of its name."""
    if name.startswith("gaussian"):
        return gaussian_pool(int(name.removeprefix("gaussian")))
    return load_pool(name, root, cache)


def evidence_row(case: Case) -> Row:
    """What the verdicts rest on, as one row."""
    start = time.process_time()
    classes, codes = np.unique(case.targets, return_inverse=True)
    sketch = make_sketch(torch.from_numpy(standardise(case.features)))
    found = gather_evidence(sketch, torch.from_numpy(codes), len(classes))
    return {**as_numbers(found), "features": case.features.shape[1], "seconds": round(time.process_time() - start, 2)}


def read_rows(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue().encode())
