"""The paper's ablation and sensitivity figures, drawn from their ledgers."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from icda.errors import InputError
from icda_bench.suites.suite import Suite
from icda_bench.suites.suite_table import ColumnRuns, best_tier

ROWS, CURVES = "ablation", "sensitivity"
FIGURES = (ROWS, CURVES)
COLOUR, MUTED = "#2a5d8f", "#b0592b"


def draw_suite(suite: Suite, ledger: Sequence[Mapping[str, str]], path: Path) -> None:
    """Draw a suite's ledger to an image file; nothing measured is an error, not an empty picture."""
    shown = [runs for column in suite.columns if (runs := best_tier(suite, column, ledger))]
    if not shown:
        raise InputError(f"nothing of {suite.name} was run yet: `icda bench {suite.name}` comes first.")
    from icda.explain.plots import new_figure  # which imports torch

    panels = 1 if suite.name == ROWS else 2
    figure = new_figure(4.2 * panels, 3.0 * len(shown), dpi=150)
    axes = figure.subplots(len(shown), panels, squeeze=False)
    for runs, line in zip(shown, axes, strict=True):
        if suite.name == ROWS:
            _draw_rows(line[0], runs)
        else:
            for axis, option in zip(line, ("lambda0", "beta"), strict=True):
                _draw_curve(axis, runs, option)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None} if path.suffix == ".png" else None)


def curve_points(runs: ColumnRuns, option: str) -> list[tuple[float, tuple[float, ...]]]:
    """Values of an option with what was measured there; the suite's reference row stands for the option's default."""
    defaults = {"lambda0": 0.5, "beta": 0.1}
    points = []
    for row in runs.suite.rows:
        if not set(row.options) - {option} and (values := runs.points(row)):
            points.append((float(row.options.get(option, defaults[option])), values))
    return sorted(points)


def _draw_rows(axis: Any, runs: ColumnRuns) -> None:
    drawn = [(row, values) for row in runs.suite.rows if (values := runs.points(row))]
    for position, (row, values) in enumerate(drawn):
        colour = COLOUR if row.key == runs.suite.reference else MUTED
        # Every seed, and the mean with its deviation: bars would have to start at zero, which hides a point's difference.
        axis.plot([position] * len(values), values, "o", color=colour, markersize=4, alpha=0.6)
        axis.errorbar(position + 0.12, statistics.mean(values), _deviation(values), fmt="D", color=colour, capsize=3)
    axis.set_xticks(range(len(drawn)), [row.title for row, _ in drawn])
    axis.margins(x=0.15, y=0.2)
    axis.grid(axis="y", alpha=0.3)
    axis.tick_params(axis="x", labelrotation=15, labelsize=8)
    _label(axis, runs)


def _draw_curve(axis: Any, runs: ColumnRuns, option: str) -> None:
    points = curve_points(runs, option)
    values = [value for value, _ in points]
    means = [statistics.mean(measured) for _, measured in points]
    deviations = [_deviation(measured) for _, measured in points]
    axis.errorbar(values, means, yerr=deviations, color=COLOUR, marker="o", capsize=3)
    axis.set_xscale("symlog", linthresh=0.01)
    axis.set_xticks(values, [f"{value:g}" for value in values])
    axis.minorticks_off()
    axis.set_xlabel(option)
    _label(axis, runs)


def _label(axis: Any, runs: ColumnRuns) -> None:
    axis.set_ylabel("accuracy, %")
    axis.set_title(f"{runs.column.title} (tier {runs.tier})", fontsize=10)


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
