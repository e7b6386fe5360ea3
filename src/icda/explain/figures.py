"""The paper's figures from trained runs: one picture file each, with its numbers in a CSV beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from icda.data.task import Task
from icda.errors import InputError
from icda.explain.margins import adjusted_margins, margins, sample_distances
from icda.explain.passes import Pass, named_split, run_pass, subsample
from icda.explain.picture_figures import counterfactual_figure, gradcam_figure
from icda.explain.plots import plot_margins, plot_variances
from icda.explain.variances import logged_variances, variance_figures
from icda.methods.base import Method
from icda.models.base import FeatureClassifier
from icda.registry import did_you_mean
from icda.results.foreign_text import write_csv

SUFFIXES = (".png", ".pdf", ".svg")
SMALL_MARGIN = 1.0
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class TrainedRun:
    """A finished run as the figures need it; `label` names it in the legend."""

    label: str
    task: Task
    networks: Sequence[FeatureClassifier]
    method: Method
    history: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class FigureOptions:
    """What a figure looks at: which split, how many pictures, how many samples to measure, by which seed."""

    split: str = "test"
    samples: int = 8
    measured: int = 200
    seed: int = 0
    layer: str | None = None
    limit: int = 4096


def make_figure(
    name: str, runs: Sequence[TrainedRun], out: str | Path, options: FigureOptions | None = None
) -> list[Path]:
    """Draw a figure of one or several runs; returns the files written, the picture first.

    All runs are looked at on the same samples, so they must be of one task. `out` ends in .png, .pdf or .svg.
    """
    out = Path(out)
    draw = check_figure(name, runs, out)
    figure, tables = draw(runs, options or FigureOptions())
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    written = [out]
    for suffix, rows in tables.items():
        path = out.with_name(f"{out.stem}{suffix}.csv")
        with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            write_csv(file, list(rows[0]), rows)
        written.append(path)
    return written


def check_figure(name: str, runs: Sequence[TrainedRun], out: Path) -> Callable[..., tuple[Any, dict[str, Rows]]]:
    """All that can be wrong with a request, found before anything is computed."""
    if name not in FIGURES:
        hint = did_you_mean(name, FIGURES)
        raise InputError(f"unknown figure {name!r}: {hint}Known: {', '.join(FIGURES)}.")
    check_suffix(out)
    if not runs:
        raise InputError(f"the figure {name} needs at least one run.")
    first = runs[0].task
    for run in runs[1:]:
        if run.task.name != first.name or run.task.data_hash != first.data_hash:
            raise InputError(
                f"runs of one figure must share their data: {runs[0].label!r} is of task {first.name!r}, "
                f"{run.label!r} of {run.task.name!r} (or of another data seed)."
            )
    if len({run.label for run in runs}) < len(runs):
        raise InputError(f"runs of one figure need different labels, got {', '.join(run.label for run in runs)}.")
    return FIGURES[name]


def check_suffix(out: Path) -> None:
    """
    >>> check_suffix(Path("margins.jpg"))
    Traceback (most recent call last):
    icda.errors.InputError: a figure is written as .png, .pdf or .svg, got 'margins.jpg'.
    """
    if out.suffix.lower() not in SUFFIXES:
        raise InputError(f"a figure is written as {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}, got {str(out)!r}.")


def _margins(runs: Sequence[TrainedRun], options: FigureOptions) -> tuple[Any, dict[str, Rows]]:
    values, distances, summary = {}, {}, []
    for run in runs:
        seen = run_pass(run.method, run.networks, named_split(run.task, options.split))
        values[run.label] = margins(seen.logits, seen.targets)
        distances[run.label] = sample_distances(seen.logits, seen.targets, seen.weight)
        summary += margin_summary(run, seen, values[run.label], distances[run.label])
    title = f"{runs[0].task.name}, {options.split} split: how far from being wrong"
    figure, rows = plot_margins(values, distances, title)
    return figure, {"": rows, "_summary": summary}


def margin_summary(run: TrainedRun, seen: Pass, values: Tensor, distances: Tensor) -> Rows:
    """Quantiles and shares of margins, over all samples, each class and each group."""
    adjusted = adjusted_margins(run.method, seen)
    parts = {"all": torch.ones(len(seen), dtype=torch.bool)}
    parts |= {f"class {run.task.class_name(c)}": seen.targets == c for c in range(run.task.num_classes)}
    if seen.groups is not None:
        parts |= {f"group {name}": seen.groups == g for g, name in enumerate(run.task.group_names or ())}
    rows = []
    for name, chosen in parts.items():
        own = values[chosen]
        if not len(own):
            continue
        quantiles = own.double().quantile(torch.tensor(QUANTILES, dtype=torch.float64)).tolist()
        small = ((own >= 0) & (own < SMALL_MARGIN)).double().mean()
        figures = {
            "mean": own.mean(),
            **{f"p{100 * q:.0f}": value for q, value in zip(QUANTILES, quantiles, strict=True)},
            "share_wrong": (own < 0).double().mean(),
            f"share_right_below_{SMALL_MARGIN:g}": small,
            "mean_distance": distances[chosen].mean(),
            "mean_with_adjustment": "" if adjusted is None else adjusted[chosen].mean(),
        }
        formatted = {key: value if value == "" else f"{float(value):.5g}" for key, value in figures.items()}
        rows.append({"run": run.label, "part": name, "samples": len(own), **formatted})
    return rows


def _variances(runs: Sequence[TrainedRun], options: FigureOptions) -> tuple[Any, dict[str, Rows]]:
    figures = {}
    for run in runs:
        positions = subsample(run.task.train, options.limit, options.seed)
        seen = run_pass(run.method, run.networks, run.task.train, positions)
        figures[run.label] = variance_figures(seen, run.history) | {"logged": logged_variances(run.history)}
    figure, rows = plot_variances(figures, f"Mapped variances on {runs[0].task.name}, training split")
    return figure, {"": rows}


FIGURES: dict[str, Callable[..., tuple[Any, dict[str, Rows]]]] = {
    "margins": _margins,
    "variance": _variances,
    "gradcam": gradcam_figure,
    "counterfactual": counterfactual_figure,
}
