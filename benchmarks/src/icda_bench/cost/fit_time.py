"""Time of `ICDAClassifier.fit` beside LogisticRegression."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from icda.data.registry import data_root
from icda.estimators.classifier import LOSSES, ICDAClassifier
from icda_bench.cost.large_fit import measure_large_fit
from icda_bench.cost.measures import Ratios, Step, interleave
from icda_bench.options import Root
from icda_bench.rows import Row, publish
from icda_bench.studies.features import read_waterbirds

REFERENCE = "logistic regression"
SYNTHETIC = ((30_000, 256, 50), (100_000, 512, 100))  # samples, features, classes


@dataclass
class Arguments:
    """Fit times beside scikit-learn's LogisticRegression, taking turns in one process."""

    rounds: int = 3
    """Fits of each; the median is reported."""
    root: Root = None
    out: Path | None = None
    """CSV file to write (benchmarks/results/fit_time.csv is ours)."""
    large: Path | None = None
    """Measure memory instead: a folder for a file of 1,000,000 x 512 numbers (2 GiB), fitted from disk."""


def measure_fit_time(root: Path, rounds: int) -> list[Row]:
    """Waterbirds' features under `root` (float32, standardised), and two made-up sets."""
    rows: list[Row] = []
    made_up = [("synthetic", partial(synthetic_rows, size)) for size in SYNTHETIC]
    for name, make in [("waterbirds", partial(_waterbirds, root)), *made_up]:
        X, y = make()
        print(f"{name}: {X.shape[0]} x {X.shape[1]}, {len(np.unique(y))} classes")
        rows += compare(name, X, y, LOSSES, 1.0, rounds)
    return rows


def compare(name: str, X: np.ndarray, y: np.ndarray, losses: Sequence[str], C: float, rounds: int) -> list[Row]:
    """All models take turns in one process."""
    # scikit-learn's two-class form has one row of weights, w1 - w0, and penalises it whole where two rows get half.
    reference_C = 2 * C if len(np.unique(y)) == 2 else C
    models: dict[str, Any] = {REFERENCE: LogisticRegression(C=reference_C, max_iter=200)}
    models |= {loss: ICDAClassifier(loss, C=C) for loss in losses}  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps: dict[str, Step] = {key: partial(model.fit, X, y) for key, model in models.items()}
        times = interleave(steps, rounds, warm_up=1)
    return [_row(name, X, y, loss, models, times, C) for loss in losses]


def _row(
    name: str, X: np.ndarray, y: np.ndarray, loss: str, models: dict[str, Any], times: dict[str, list[float]], C: float
) -> Row:
    """Median seconds of a fit, and beside them those of LogisticRegression on the same data with the same C and tol.

    `objective` is the value of cross entropy's objective that was reached, computed in float64 and for "ce" only, which
    has the same objective as LogisticRegression: whoever stops earlier is seen.
    """
    ratios = Ratios.of(times[REFERENCE], times[loss])
    values = [objective(models[key], X, y, C) if loss == "ce" else None for key in (loss, REFERENCE)]
    return {
        "data": name,
        **{"samples": len(X), "features": X.shape[1], "classes": len(np.unique(y)), "loss": loss},
        "seconds": round(statistics.median(times[loss]), 3),
        "reference_seconds": round(statistics.median(times[REFERENCE]), 3),
        "ratio": round(ratios.middle, 3),
        "quartiles": ratios.text(2),
        "iterations": int(models[loss].n_iter_),
        "reference_iterations": int(np.max(models[REFERENCE].n_iter_)),
        "objective": values[0],
        "reference_objective": values[1],
    }


def objective(model: Any, X: np.ndarray, y: np.ndarray, C: float) -> float:
    """Mean cross entropy plus |W|^2 / (2 C N), in float64, of a head with a row for each class."""
    weight, bias = np.asarray(model.coef_, dtype=np.float64), np.asarray(model.intercept_, dtype=np.float64)
    if len(weight) == 1:
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    codes, total = np.searchsorted(model.classes_, y), 0.0
    for rows in np.array_split(np.arange(len(y)), 1 + len(y) // 20_000):
        logits = X[rows].astype(np.float64) @ weight.T + bias
        total += float((logsumexp(logits, 1) - logits[np.arange(len(rows)), codes[rows]]).sum())
    return round((total + 0.5 / C * float(np.square(weight).sum())) / len(y), 8)


def _waterbirds(root: Path) -> tuple[np.ndarray, np.ndarray]:
    whole, split = read_waterbirds(root)
    train = whole.rows(split == 0)
    return StandardScaler().fit_transform(train.features), train.targets


def synthetic_rows(size: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Classes around their means, in features that are correlated as an encoder's are, standardised."""
    samples, width, classes = size
    generator = np.random.default_rng(0)
    scale = (np.arange(1, width + 1) ** -0.5).astype(np.float32)  # standard deviations along hidden directions
    mixing = np.linalg.qr(generator.normal(size=(width, width)))[0].astype(np.float32)
    y = generator.integers(classes, size=samples)
    means = generator.normal(size=(classes, width)).astype(np.float32)
    hidden = (generator.standard_normal((samples, width), dtype=np.float32) + 0.3 * means[y]) * scale
    return StandardScaler().fit_transform(hidden @ mixing), y


def run(options: Arguments) -> None:
    if options.large is not None:
        publish("large-fit", measure_large_fit(folder=options.large), options.out)
    else:
        publish("fit-time", measure_fit_time(data_root(options.root), rounds=options.rounds), options.out)
