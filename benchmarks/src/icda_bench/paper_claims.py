"""The paper's claims beside what was measured: one table, made from the ledgers and the suites' own verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from icda_bench.cost.network_cost import cost_cells, cost_status
from icda_bench.markdown import grouped, markdown, numbers, spread
from icda_bench.rows import read_table
from icda_bench.studies.tail_features import TITLES
from icda_bench.suites.suite import Suite, cell_config, load_suite
from icda_bench.suites.suite_table import ColumnRuns, length_text, suite_rows
from icda_bench.suites.verdict import Line, Status


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper, and the cells it is looked at with: a row of a suite beside the row it should beat."""

    text: str
    scale: str
    suite: str
    column: str
    row: str
    against: str
    label: str
    group: str
    tier: str = "cpu"


@cache
def _content() -> dict[str, Any]:
    return yaml.safe_load(files("icda_bench").joinpath("claims.yaml").read_text())


def load_claims() -> list[Claim]:
    claims = _content()["claims"]
    return [Claim(**entry["cells"], **{key: entry[key] for key in entry if key != "cells"}) for entry in claims]


FEATURES = "tiny_imagenet_lt"
TITLE = ["the paper says", "its figures", "ours", "at which scale", "verdict"]


def claims_table(results: Path) -> str:
    """Every claim with the paper's figures, ours, their scale and the verdict. Long runs are shown if there are any."""
    lines = [_suite_line(claim, results) for claim in load_claims()]
    extra = [_features_line(results), _cost_line(results)]
    return markdown(TITLE, [line for line in (*lines, *extra) if line is not None])


def claim_lines(claim: Claim, results: Path) -> tuple[Line, Line] | None:
    """The row that a claim is about and the one it should beat; None for long runs that are not there."""
    suite = load_suite(claim.suite)
    runs = ColumnRuns(suite, suite.column(claim.column), claim.tier, suite_rows(suite.name, results))
    lines = {line.row.key: line for line in runs.lines()}
    row, against = lines[claim.row], lines[claim.against]
    return None if claim.tier == "long" and not (row.values and against.values) else (row, against)


def _suite_line(claim: Claim, results: Path) -> list[str] | None:
    suite, found = load_suite(claim.suite), claim_lines(claim, results)
    if found is None:
        return None
    row, against = found
    return [
        f"{claim.text} ([{claim.suite}]({_content()['pages'][claim.suite]}))",
        _paper_cell(suite, row, against),
        f"{_named(suite, row)}, {_named(suite, against)}",
        _scale(suite, claim, row),
        row.verdict.text(),
    ]


def _scale(suite: Suite, claim: Claim, row: Line) -> str:
    column = suite.column(claim.column)
    if claim.tier not in column.places:
        return column.absent or claim.scale
    config = cell_config(suite, claim.tier, column, row.row)
    return f"{claim.scale}, {config.model or 'its own network'}, {length_text(config)}"


def _paper_cell(suite: Suite, row: Line, against: Line) -> str:
    if row.paper is None and against.paper is None:
        return "no figures, the order only"
    return ", ".join(
        f"{_short(line.row.title)} {'none' if line.paper is None else f'{suite.printed(line.paper):.2f}'}"
        for line in (row, against)
    )


def _named(suite: Suite, line: Line) -> str:
    return f"{_short(line.row.title)} {suite.spread(line.values) or 'not run here'}"


def _short(title: str) -> str:
    return title.split(",")[0].split(":")[0]


class FeaturesClaim(NamedTuple):
    """The ImageNet-LT figure's stand-in, heads on frozen features of Tiny ImageNet: accuracies of ICDA and LA by seed.

    Seeds are the same splits for both, so their differences are compared with zero.
    """

    icda: list[float]
    la: list[float]

    @classmethod
    def read(cls, results: Path) -> FeaturesClaim | None:
        """From the study's file; None where it lacks one of them."""
        rows = grouped(read_table(results / "tail_features.csv"), lambda row: (row["set"], row["method"]))
        icda, la = (numbers(rows.get((FEATURES, method), []), "accuracy") for method in ("icda", "la"))
        return cls([100 * value for value in icda], [100 * value for value in la]) if icda and la else None

    @property
    def differences(self) -> list[float]:
        return [mine - other for mine, other in zip(self.icda, self.la, strict=True)]

    @property
    def status(self) -> Status:
        """Ahead with every seed, or not."""
        return "trend holds" if all(value > 0 for value in self.differences) else "does not hold"

    def verdict(self) -> str:
        ahead, seeds = sum(value > 0 for value in self.differences), len(self.differences)
        return f"{self.status}: {sum(self.differences) / seeds:+.1f} to LA, ahead with {ahead} of {seeds} seeds"


def _features_line(results: Path) -> list[str] | None:
    found = FeaturesClaim.read(results)
    if found is None:
        return None
    return [
        "ahead on ImageNet-LT, heads on frozen features ([figure](embeddings.md#long-tails-on-frozen-features))",
        "no figures, the order only",
        f"ICDA {spread(found.icda, digits=1)}, LA {spread(found.la, digits=1)}",
        f"{TITLES[FEATURES]}, features of EfficientNet-Lite0",
        found.verdict(),
    ]


def _cost_line(results: Path) -> list[str] | None:
    cells = cost_cells(read_table(results / "table3.csv"))
    pairs = [(paper, line) for _, _, paper, line in cells if line is not None]
    if not pairs:
        return None
    extras = [float(line["extra"]) for _, line in pairs]
    papers = [paper for paper, _ in pairs]
    held = sum(cost_status(paper, float(line["extra"]), float(line["noise"])) == "trend holds" for paper, line in pairs)
    return [
        "little extra training time ([table3](speed.md#table-3-extra-training-time))",
        f"+{min(papers):.1f} to +{max(papers):.1f} %",
        f"{min(extras):+.1f} to {max(extras):+.1f} %",
        f"seven networks, {len(pairs)} cells, a CPU",
        f"trend holds in {held} of {len(pairs)}",
    ]
