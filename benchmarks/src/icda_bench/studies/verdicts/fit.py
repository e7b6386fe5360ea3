"""Limits fitted on all sets but one and judged on that one: what the verdicts are worth on data they have not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from icda.auditing.evidence import Evidence
from icda.auditing.verdicts import decide
from icda.cross_fit.rules import LIMITS, Limit, Limits
from icda_bench.markdown import markdown
from icda_bench.rows import read_table
from icda_bench.studies.verdicts.judge import PLANTED, TITLES, evidence_of, truth_of

# Candidates for the place of each limit; widths and everything else stay as they are.
CANDIDATES: dict[str, tuple[float, ...]] = {
    "sureness": (1.1, 1.2, 1.35, 1.5),
    "agreement": (0.94, 0.95, 0.96, 0.97),
    "disagreement": (0.42, 0.5, 0.6),
    "gain": (0.01, 0.025, 0.04),
    "noisy_agreement": (0.98, 0.985, 0.99),
    "noisy_read": (2.0, 2.5, 3.0, 3.5),
    "noisy_followed": (0.25, 0.38),
    "sure_errors": (0.025, 0.035, 0.045),
}
SHIFTS = (-0.1, -0.05, 0.0, 0.05, 0.1)  # of the flatness that is needed
ALARM_COST = 2.0  # a false alarm counts as so many misses: a treatment for nothing does harm


class Judged(NamedTuple):
    """One case: its evidence and what was planted."""

    pool: str
    evidence: Evidence
    truth: dict[str, bool]


def cost(cases: Sequence[Judged], limits: Limits) -> float:
    """Misses and false alarms, "cannot tell" counting half; each kind's cases with and without it weigh as shares."""
    total = 0.0
    for kind in ("shortcut", "label_noise"):
        missed: list[float] = []
        alarms: list[float] = []
        for case in cases:
            answer = decide(case.evidence, limits)[kind].answer
            wrong = 0.5 if answer == "cannot tell" else float((answer == "yes") != case.truth[kind])
            (missed if case.truth[kind] else alarms).append(wrong)
        total += float(np.mean(missed)) + ALARM_COST * float(np.mean(alarms))
    return total


def fit_limits(cases: Sequence[Judged]) -> Limits:
    """Each limit in turn moved to where the cost is least; the first of equals, beginning with where it stood."""
    best, best_cost = LIMITS, cost(cases, LIMITS)
    for name in (*CANDIDATES, "flatness"):
        for tried in _moved(best, name):
            found = cost(cases, tried)
            if found < best_cost - 1e-9:
                best, best_cost = tried, found
    return best


def left_out(path: Path) -> list[dict[str, Any]]:
    """One row per case with the answers of limits that were fitted without its set; synthetic sets are one."""
    cases = [Judged(row["pool"], evidence_of(row), truth_of(row)) for row in read_table(path)]
    rows = []
    for name in sorted({family(case.pool) for case in cases}):
        limits = fit_limits([case for case in cases if family(case.pool) != name])
        for case in (case for case in cases if family(case.pool) == name):
            found = decide(case.evidence, limits)
            planted = {f"{kind}_planted": case.truth[kind] for kind in PLANTED}
            rows.append({"set": name, "pool": case.pool, **planted, **{kind: found[kind].answer for kind in PLANTED}})
    return rows


def family(pool: str) -> str:
    """The set a pool belongs to: the synthetic ones are drawn by one recipe."""
    return "gaussian" if pool.startswith("gaussian") else pool


def left_out_table(path: Path) -> str:
    """Named and false alarms per set, each judged by limits fitted to the other sets; from the rows of `left_out`."""
    rows = read_table(path)
    body = []
    for name in [*sorted({row["set"] for row in rows}), "all"]:
        chosen = [row for row in rows if name in ("all", row["set"])]
        body.append([name, str(len(chosen)), *(_named(chosen, kind) for kind in PLANTED)])
    titles = ["set left out", "cases", *(f"{TITLES[kind]}: named; alarms" for kind in PLANTED)]
    return markdown(titles, body)


def _named(rows: Sequence[dict[str, Any]], kind: str) -> str:
    there = [row[kind] == "yes" for row in rows if str(row[f"{kind}_planted"]) == "True"]
    absent = [row[kind] == "yes" for row in rows if str(row[f"{kind}_planted"]) == "False"]
    return f"{sum(there)} of {len(there)}; {sum(absent)} of {len(absent)}"


def _moved(limits: Limits, name: str) -> list[Limits]:
    if name == "flatness":
        return [
            replace(limits, flatness=tuple((skill, wanted + shift) for skill, wanted in LIMITS.flatness))
            for shift in SHIFTS
        ]
    width = getattr(limits, name).width
    return [replace(limits, **{name: Limit(at, width)}) for at in CANDIDATES[name]]  # type: ignore[arg-type]
