"""`icda bench tail-features`: fill the table row by row; what is there is not run again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from icda.data.registry import data_root
from icda_bench.markdown import grouped, markdown, percent
from icda_bench.options import Root, check_names
from icda_bench.rows import append_rows, machine_columns, read_rows
from icda_bench.studies.tail_features.heads import ROWS, Heads, TailHead
from icda_bench.studies.tail_features.sets import DIRECTIONS, SETS, TailSet

KINDS = ("many", "medium", "few")
TITLES = {
    "cifar10_lt_100": "CIFAR-10, 100:1",
    "cifar10_lt_10": "CIFAR-10, 10:1",
    "tiny_imagenet_lt": "Tiny ImageNet, 100 classes, 100:1",
}


@dataclass
class Arguments:
    """Fit heads on EfficientNet-Lite0's features of long-tailed CIFAR-10 and Tiny ImageNet; finished cells are kept."""

    sets: tuple[str, ...] = ()
    """Only these sets: cifar10_lt_100, cifar10_lt_10, tiny_imagenet_lt."""
    methods: tuple[str, ...] = ()
    """Only these rows of the table."""
    seeds: int = 5
    """Seeds of each row: which images make tail and validation data (CIFAR-10), or the split of the balanced images."""
    root: Root = None
    cache: Path = Path("runs/tail_features")
    """Folder for the features, computed once (41,000 images, about five minutes on one core)."""
    out: Path = Path("runs/tail_features/tail_features.csv")
    """CSV file to fill (benchmarks/results/tail_features.csv is ours)."""


@dataclass(frozen=True)
class TailRow:
    """One head on one set with one seed: accuracies on the balanced test part, and what was chosen on validation data."""

    set: str
    method: str
    seed: int
    accuracy: float
    many: float
    medium: float
    few: float
    chosen: float
    validation_accuracy: float
    samples: int
    seconds: float
    processor: str
    cores: int
    torch: str
    commit: str


def run_tail_features(
    path: Path,
    root: Path,
    cache: Path,
    sets: Sequence[str] = tuple(SETS),
    methods: Sequence[str] = (),
    seeds: int = 5,
    report: Callable[[str], None] = print,
) -> list[TailRow]:
    """Fit the rows that `path` lacks, and append each as soon as it is there."""
    known = {(row.set, row.method, row.seed) for row in read_rows(path, TailRow)}
    for name in sets:
        heads: dict[tuple[str, float], Any] = {}
        for seed in range(seeds):
            missing = [
                row for row in ROWS if (not methods or row.name in methods) and (name, row.name, seed) not in known
            ]
            if not missing:
                continue
            data = SETS[name](root, seed, cache).standardised().reduced(DIRECTIONS)
            if not data.fixed_training:
                heads = {}
            fits = Heads(data.train)
            for row in missing:
                found = judge(data, fits, row, heads, seed)
                append_rows(path, [found])
                report(f"{name}, {row.name}, seed {seed}: {100 * found.accuracy:.1f} ({found.seconds:.0f} s)")
    return read_rows(path, TailRow)


def judge(data: TailSet, fits: Heads, row: TailHead, heads: dict[tuple[str, float], Any], seed: int) -> TailRow:
    """The best of a row's heads on validation data, judged on the test part. `heads` keeps what was fitted."""
    started, best = time.perf_counter(), (-1.0, 0.0)
    for choice in row.choices:
        if (row.name, choice) not in heads:
            heads[row.name, choice] = fits.fit(row.name, choice)
        predicted = heads[row.name, choice](data.validation.features).argmax(1)
        right = float((predicted == data.validation.targets).mean())
        best = max(best, (right, choice), key=lambda pair: pair[0])
    score, chosen = best
    logits = heads[row.name, chosen](data.test.features)
    hits = logits.argmax(1) == data.test.targets
    per_class = np.array([hits[data.test.targets == label].mean() for label in range(logits.shape[1])])
    kinds: dict[str, Any] = {name: round(float(per_class[classes].mean()), 5) for name, classes in data.kinds().items()}
    machine: dict[str, Any] = {name: value or "" for name, value in machine_columns().items() if name != "threads"}
    return TailRow(
        set=data.name,
        method=row.name,
        seed=seed,
        accuracy=round(float(per_class.mean()), 5),
        **kinds,
        chosen=chosen,
        validation_accuracy=round(score, 5),
        samples=len(data.train.targets),
        seconds=round(time.perf_counter() - started, 1),
        **machine,
    )


def tail_table(rows: Sequence[TailRow]) -> str:
    """Mean ± standard deviation over seeds, in per cent, for one set."""
    by_method, body = grouped(rows, lambda row: row.method), []
    for head in (head for head in ROWS if head.name in by_method):
        mine = by_method[head.name]
        chosen = ", ".join(f"{value:g}" for value in sorted({row.chosen for row in mine}))
        body.append([head.title, *(percent(mine, figure) for figure in ("accuracy", *KINDS)), chosen])
    return markdown(["head", "accuracy", *KINDS, "chosen"], body)


def tail_tables(rows: Sequence[TailRow]) -> str:
    """All sets that were run, one under the other."""
    by_set = grouped(rows, lambda row: row.set)
    return "\n\n".join(f"**{TITLES[name]}**\n\n{tail_table(by_set[name])}" for name in SETS if name in by_set)


def run(options: Arguments) -> None:
    check_names("sets", options.sets, SETS)
    check_names("methods", options.methods, (row.name for row in ROWS))
    root, sets = data_root(options.root), options.sets or tuple(SETS)
    print(tail_tables(run_tail_features(options.out, root, options.cache, sets, options.methods, options.seeds)))
