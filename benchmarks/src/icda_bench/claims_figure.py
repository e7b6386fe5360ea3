"""The paper's claims as one picture: its lead and ours, a dot for each, from the ledgers."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from icda.explain.plots import new_figure
from icda_bench.paper_claims import Claim, FeaturesClaim, claim_lines
from icda_bench.suites.suite_figure import COLOUR, MUTED
from icda_bench.suites.verdict import Comparison, Line

COLOURS = {"trend holds": COLOUR, "reproduced": COLOUR, "does not hold": MUTED}  # of anything else: grey
GREY = "0.55"
TICKS = (-50, -20, -10, -5, -2, 0, 2, 5, 10, 20)
ROW = 0.245  # inches


@dataclass(frozen=True)
class Dot:
    """A claim as a lead in points of accuracy: the paper's, unless it gives the order only, and ours, if it was run."""

    group: str
    label: str
    compared: str
    paper: float | None
    lead: float | None
    noise: float
    status: str


def claim_dots(claims: list[Claim], results: Path) -> list[Dot]:
    """One for each claim of a suite, and one for heads on frozen features; long runs if there are any."""
    dots = [_suite_dot(claim, *lines) for claim in claims if (lines := claim_lines(claim, results)) is not None]
    found = FeaturesClaim.read(results)
    return dots if found is None else [*dots, _features_dot(found.differences, found.status)]


def _features_dot(differences: list[float], status: str) -> Dot:
    noise = 2 * statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
    lead = statistics.mean(differences)
    return Dot("Heads on frozen features", "ImageNet-LT", "ICDA − LA", None, lead, noise, status)


def _suite_dot(claim: Claim, row: Line, against: Line) -> Dot:
    name = _name(row.row.title)
    status = row.verdict.status
    if not row.verdict.comparisons:
        paper = None
        if row.paper is not None and against.paper is not None:
            paper = row.paper - against.paper
        return Dot(claim.group, claim.label, f"{name} − {_name(against.row.title)}", paper, None, 0.0, status)
    smallest = min(row.verdict.comparisons, key=lambda each: (each.agrees is True, _lead(each)))
    other = _name(smallest.other)
    ahead, behind = (name, other) if smallest.paper >= 0 else (other, name)
    printed = abs(smallest.paper) if math.isfinite(smallest.paper) else None
    compared = f"{ahead} − {behind}"
    return Dot(claim.group, claim.label, compared, printed, _lead(smallest), smallest.noise, status)


def _lead(comparison: Comparison) -> float:
    """The difference in the direction in which the paper has it."""
    return comparison.difference if comparison.paper >= 0 else -comparison.difference


def _name(title: str) -> str:
    """A row's title in short.

    >>> _name("Group prior (ours)"), _name("ICDA, no groups"), _name("II: no class margin")
    ('Group prior', 'ICDA', 'no class margin')
    """
    return title.partition(" (")[0].partition(",")[0].rpartition(": ")[2]


def draw_claims(dots: list[Dot], path: Path) -> None:
    """A row for each claim: a diamond for the paper's lead, a dot with its noise for ours."""
    groups = [(group, list(members)) for group, members in itertools.groupby(dots, key=lambda dot: dot.group)]
    count = len(dots) + len(groups)
    figure = new_figure(7.6, ROW * count + 1.1, dpi=150)
    axes = figure.subplots()
    axes.axvline(0, color="0.3", linewidth=0.9, zorder=1)
    axes.axvspan(0, 100, color=COLOUR, alpha=0.06, linewidth=0, zorder=0)
    place, labels = 0, []
    for group, members in groups:
        labels.append((place, group, True))
        for dot in members:
            place += 1
            labels.append((place, dot.label, False))
            _draw_dot(axes, place, dot)
        place += 1
    axes.set_yticks([where for where, _, _ in labels], [text for _, text, _ in labels], fontsize=8.5)
    for tick, (_, _, heading) in zip(axes.get_yticklabels(), labels, strict=True):
        tick.set_fontweight("bold" if heading else "normal")
    axes.set_ylim(count - 0.4, -0.8)
    _dress(axes)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})


def _draw_dot(axes: Any, place: int, dot: Dot) -> None:
    axes.axhline(place, color="0.9", linewidth=0.7, zorder=0)
    colour = COLOURS.get(dot.status, GREY)
    if dot.lead is not None:
        if dot.paper is not None:
            axes.plot([dot.lead, dot.paper], [place, place], color=colour, alpha=0.3, linewidth=1.2, zorder=2)
        axes.errorbar(dot.lead, place, xerr=dot.noise, fmt="o", color=colour, markersize=6.5, capsize=2.5, zorder=4)
    if dot.paper is not None:
        axes.plot(dot.paper, place, "D", color="white", markeredgecolor="0.25", markersize=5, zorder=3)
    shown = dot.compared if dot.lead is not None else f"{dot.compared}: not run"
    axes.annotate(
        shown,
        (1.01, place),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=7.5,
        color="0.35" if dot.lead is not None else GREY,
        annotation_clip=False,
    )


def _dress(axes: Any) -> None:
    axes.set_xscale("symlog", linthresh=2, linscale=0.6)
    axes.set_xlim(-90, 30)
    axes.set_xticks(TICKS, [f"{tick:+d}" if tick else "0" for tick in TICKS])
    axes.minorticks_off()
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel(
        "lead over the rival, points of accuracy (smallest of those the verdict rests on; bars: noise)", fontsize=8.5
    )
    marks = [
        axes.plot([], [], "D", color="white", markeredgecolor="0.25", markersize=5, label="the paper")[0],
        axes.plot([], [], "o", color=COLOUR, markersize=6.5, label="ours: trend holds")[0],
        axes.plot([], [], "o", color=MUTED, markersize=6.5, label="ours: does not hold")[0],
    ]
    axes.legend(handles=marks, frameon=False, fontsize=8.5, ncols=3, loc="lower center", bbox_to_anchor=(0.4, 1.0))
