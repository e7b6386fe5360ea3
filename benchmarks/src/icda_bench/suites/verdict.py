"""Does what we measured agree with the paper? The rules, stated once.

All figures are accuracies in per cent; an error rate is subtracted from 100 first. Within a column and a tier:

* *reproduced*: the cell was run at tier `paper` and its mean lies within max(1 point, 2 standard deviations over seeds) of
  the paper's figure.
* *trend holds*: not that, but every comparison the paper makes comes out the same way here, beyond noise. A row is compared
  with the suite's reference row. Rows of our own (ICDA, Meta-ICDA) are compared with the best rival of their group (with
  or without metadata) too: the rival that did best here, which need not be the paper's. Where the paper gives an order and
  no figures (ablation, sensitivity) a row is compared with the row it is said to be below.
* *does not hold*: a comparison came out the other way, or within noise.
* *too noisy to tell*: nothing came out the other way, but for a tie of the paper our noise exceeds 2 points.
* *reference not run*: the paper compares the row with the reference, of which there is no row in the ledger.
* *not run here*: there is no such row in the ledger.
* *cited*: the method is not here, so there is nothing to run.

Noise of a difference is 2 s sqrt(1/n + 1/m), s being the standard deviation over seeds pooled over the rows of the column
that have a figure in the paper, because that of three seeds alone says little. Rows of our own may diverge, and are not to
blur the others; only where no row with a figure has two seeds are all rows pooled, and where none at all has, s is taken
to be 1 point. Where groups are pooled over folds the standard errors of both shares are added in quadrature.
Differences of less than 0.5 points in the paper are ties; they come out the same way if ours lie within
max(0.5 points, noise), provided that noise is no more than 2 points.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from icda_bench.suites.suite import SuiteRow

NORMAL = 1.96  # two-sided, 95 %
CLOSE = 1.0
TIE = 0.5
BLURRED = 2.0  # with more noise than this, two rows that look level need not be
ASSUMED_DEVIATION = 1.0

Status = Literal[
    "reproduced",
    "trend holds",
    "does not hold",
    "too noisy to tell",
    "reference not run",
    "not run here",
    "cited",
    "reference",
    "no figure in the paper",
]


@dataclass(frozen=True)
class Comparison:
    """A difference to another row, beside the paper's, which is infinite where the paper gives only the sign."""

    other: str
    paper: float
    difference: float
    noise: float

    @property
    def agrees(self) -> bool | None:
        """Whether the difference comes out as in the paper; None if noise hides it."""
        if abs(self.paper) >= TIE:
            return abs(self.difference) > self.noise and (self.difference > 0) == (self.paper > 0)
        if abs(self.difference) > max(TIE, self.noise):
            return False
        return True if self.noise <= BLURRED else None

    def text(self) -> str:
        return f"{self.difference:+.1f} to {self.other} (noise {self.noise:.1f})"


@dataclass(frozen=True)
class PaperVerdict:
    """A status, and what it rests on."""

    status: Status
    detail: str = ""
    comparisons: tuple[Comparison, ...] = ()

    def text(self) -> str:
        return f"{self.status}: {self.detail}" if self.detail else self.status


@dataclass(frozen=True)
class Line:
    """One row of a column: what the paper says, what we measured over seeds, both as accuracies, and the verdict.

    `interval` is that of a worst group pooled over folds.
    """

    row: SuiteRow
    paper: float | None
    values: tuple[float, ...] = ()
    interval: tuple[float, float] | None = None
    verdict: PaperVerdict = PaperVerdict("not run here")

    @property
    def mean(self) -> float:
        return statistics.mean(self.values)

    @property
    def deviation(self) -> float:
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def error(self) -> float:
        """The standard error from few test samples, where folds are pooled."""
        return 0.0 if self.interval is None else (self.interval[1] - self.interval[0]) / (2 * NORMAL)


def judge(lines: Sequence[Line], reference: str, *, at_paper_tier: bool) -> list[Line]:
    """The rows of a column, each with its verdict.

    >>> lines = [Line(SuiteRow("ce", "CE"), 70.0, (50.0, 51.0)), Line(SuiteRow("la", "LA"), 77.0, (60.0, 61.0))]
    >>> judge(lines, "ce", at_paper_tier=False)[1].verdict.text()
    'trend holds: +10.0 to CE (noise 1.4)'
    """
    by_key, deviation = {line.row.key: line for line in lines}, pooled_deviation(lines)
    return [replace(line, verdict=_verdict(line, by_key, reference, deviation, at_paper_tier)) for line in lines]


def pooled_deviation(lines: Sequence[Line]) -> float:
    """Standard deviation over seeds, from the rows with two or more that have a figure in the paper, or else from all.

    >>> ours, theirs = Line(SuiteRow("a", "A"), None, (10.0, 50.0)), Line(SuiteRow("b", "B"), 70.0, (1.0, 2.0, 3.0))
    >>> pooled_deviation([ours, theirs])
    1.0
    """
    several = [line for line in lines if len(line.values) > 1]
    several = [line for line in several if line.paper is not None] or several
    if not several:
        return ASSUMED_DEVIATION
    squares = sum((len(line.values) - 1) * line.deviation**2 for line in several)
    return math.sqrt(squares / sum(len(line.values) - 1 for line in several))


def _verdict(
    line: Line, lines: Mapping[str, Line], reference: str, deviation: float, at_paper_tier: bool
) -> PaperVerdict:
    if not line.values:
        return PaperVerdict("not run here")
    if at_paper_tier and line.paper is not None:
        away = line.mean - line.paper
        if abs(away) <= max(CLOSE, 2 * line.deviation):
            return PaperVerdict("reproduced", f"{away:+.1f} to the paper")
    if line.row.key == reference and not line.row.own:
        return PaperVerdict("reference")
    compared = tuple(
        _compare(line, other, expected, deviation) for other, expected in _comparisons(line, lines, reference)
    )
    detail = ", ".join(comparison.text() for comparison in compared)
    if _lacks_reference(line, lines[reference]):
        return PaperVerdict("reference not run", detail, compared)
    if not compared:
        return PaperVerdict("reference" if line.row.key == reference else "no figure in the paper")
    return PaperVerdict(_summed_up([comparison.agrees for comparison in compared]), detail, compared)


def _lacks_reference(line: Line, reference: Line) -> bool:
    """The paper compares the row with the reference, by figures or by their order, and we cannot."""
    by_figures = line.paper is not None and reference.paper is not None
    return not reference.values and (by_figures or line.row.below == reference.row.key)


def _summed_up(agreements: Sequence[bool | None]) -> Status:
    if False in agreements:
        return "does not hold"
    return "too noisy to tell" if None in agreements else "trend holds"


def _comparisons(line: Line, lines: Mapping[str, Line], reference: str) -> list[tuple[Line, float]]:
    """Rows to compare with, and the difference the paper gives; infinite where it gives only the sign."""
    comparisons = []
    if line.row.below is not None and lines[line.row.below].values:
        comparisons.append((lines[line.row.below], -math.inf))
    base = lines[reference]
    if line.paper is not None and base.paper is not None and base.values and base.row.key != line.row.key:
        comparisons.append((base, line.paper - base.paper))
    rivals = [each for each in lines.values() if each.row.metadata == line.row.metadata and not each.row.own]
    run = [each for each in rivals if each.values]
    if line.row.own and run and line.paper is not None:
        best = max(run, key=lambda each: each.mean)
        highest = max((each.paper for each in rivals if each.paper is not None), default=None)
        if best.row.key != reference and highest is not None:
            comparisons.append((best, line.paper - highest))
    return comparisons


def _compare(line: Line, other: Line, expected: float, deviation: float) -> Comparison:
    over_seeds = deviation**2 * (1 / len(line.values) + 1 / len(other.values))
    noise = 2 * math.sqrt(over_seeds + line.error**2 + other.error**2)
    return Comparison(other.row.title, expected, line.mean - other.mean, noise)
