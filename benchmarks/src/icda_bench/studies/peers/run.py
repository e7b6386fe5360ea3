"""`icda bench peers`: scikit-learn, fairlearn, cleanlab and icda on the same splits and features."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import balanced_accuracy_score

from icda.data.registry import data_root
from icda.settings import check_names
from icda_bench.markdown import columns, grouped, markdown, numbers, percent
from icda_bench.options import Root
from icda_bench.rows import Row, fill
from icda_bench.studies.features import FeaturePart, worst_group
from icda_bench.studies.peers.methods import METHODS, Method, installed
from icda_bench.studies.peers.sets import GROUP, SETS

NOT_INSTALLED = "not installed"
FIGURES = ("accuracy", "balanced_accuracy", "worst_group", "seconds")


@dataclass
class Arguments:
    """Compare icda with scikit-learn, fairlearn and cleanlab: accuracy, worst group, seconds."""

    data: tuple[str, ...] = ()
    """Only these data; by default all."""
    methods: tuple[str, ...] = ()
    """Only these methods; by default all."""
    seeds: int = 3
    """Splits 0, 1, ... of each data set."""
    root: Root = None
    cache: Path = Path("runs/peers")
    """Folder for embeddings, computed once."""
    out: Path = Path("runs/peers/peers.csv")
    """CSV file to fill (benchmarks/results/peers.csv is ours); rows that it holds are not measured again."""


def run(options: Arguments) -> None:
    check_names(options.data, SETS, "icda bench peers", "data set")
    check_names(options.methods, METHODS, "icda bench peers", "method")
    load = lru_cache(maxsize=1)(lambda name, seed: SETS[name](data_root(options.root), seed, options.cache))
    cells = product(options.data or SETS, range(options.seeds), options.methods or METHODS)
    rows = fill(
        options.out,
        ("data", "seed", "method"),
        cells,
        lambda name, seed, method: measure(seed, METHODS[method], *load(name, seed)),
        machine=True,
        is_stale=lambda row: row["note"] and installed(METHODS[row["method"]]),
    )
    print(*(peers_table(rows, figure) for figure in ("worst_group", "accuracy", "seconds")), sep="\n\n")


def measure(seed: int, method: Method, train: FeaturePart, test: FeaturePart) -> Row:
    """Fit to the one part and judge on the other, which is used for nothing else; a note where there is no figure."""
    sizes = {"train": len(train.targets), "features": train.features.shape[1], "test": len(test.targets)}
    if not installed(method):
        return {**sizes, **dict.fromkeys(FIGURES), "note": NOT_INSTALLED}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = time.perf_counter()
        predict = method.fit(train, seed)
        seconds = time.perf_counter() - start
    predicted = predict(test)
    hits = predicted == test.targets
    found = (hits.mean(), balanced_accuracy_score(test.targets, predicted), worst_group(hits, test.groups(GROUP)))
    shares = {name: round(float(value), 4) for name, value in zip(FIGURES, found, strict=False)}
    return {**sizes, **shares, "seconds": round(seconds, 2), "note": ""}


def peers_table(rows: Sequence[Row], figure: str) -> str:
    """A figure of each method on each data set, over splits; beside accuracy, in per cent, stands balanced accuracy."""
    cells = grouped(rows, columns("method", "data"))
    names = list(dict.fromkeys(row["data"] for row in rows))
    body = []
    for name, method in METHODS.items():
        if any((name, data) in cells for data in names):
            shown = [_cell(cells.get((name, data), []), figure) for data in names]
            body.append([method.title, *_needs(method, figure), *shown])
    needs = ["given beside labels", "needed at prediction"] if figure == "worst_group" else []
    return markdown(["classifier", *needs, *names], body)


def _needs(method: Method, figure: str) -> list[str]:
    if figure != "worst_group":
        return []
    return [method.given or "nothing", "features" + (f" and {method.at_prediction}" if method.at_prediction else "")]


def _cell(rows: Sequence[Row], figure: str) -> str:
    values = numbers(rows, figure)
    if not values:
        return next((row["note"] for row in rows), "")
    if figure == "seconds":
        return f"{np.mean(values):.1f}"
    if figure == "accuracy":
        return f"{100 * np.mean(values):.1f} / {100 * np.mean(numbers(rows, 'balanced_accuracy')):.1f}"
    return percent(rows, figure)
