"""How often the verdicts are right, and what the advice is worth: tables made from the CSV files.

Limits fitted on all sets but one and judged on that one say what the verdicts are worth on data they have not seen.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from icda.auditing.assessment import confirmed
from icda.auditing.evidence import Evidence
from icda.auditing.verdicts import decide
from icda.cross_fit.flatness import Flatness
from icda.cross_fit.pairs import PairEvidence
from icda.cross_fit.rules import LIMITS, Limit, Limits, Verdict
from icda_bench.markdown import grouped, markdown
from icda_bench.rows import Row

PLANTED = ("shortcut", "label_noise", "long_tail")
TITLES = {"shortcut": "shortcut", "label_noise": "wrong labels", "long_tail": "long tail"}
RIVALS = ("robust", "ce", "logistic", "la", "icda", "contrast", "jtt", "xrm", "twins_always", "oracle")
SIZES = ((0, 600), (600, 1200), (1200, 30_000))
HARMFUL = 0.05  # points of the worst group by which the oracle must beat LA for a shortcut to count as harmful


def evidence_of(row: Row) -> Evidence:
    """The evidence that a row of the CSV file was made from, as far as verdicts need it."""
    columns = {name: row[f"pair_{name}"].split(";") for name in PairEvidence.__dataclass_fields__ if name != "classes"}
    count = len(columns["samples"]) if row["pair_samples"] else 0
    pairs = [_pair({name: values[k] for name, values in columns.items()}) for k in range(count)]
    smallest, classes = int(row["smallest_class"]), int(row["classes"])
    counts = [smallest] * (classes - 1) + [round(smallest * float(row["ratio"]))]
    predicted = [1] * (classes - 1) + [float(row["predicted_ratio"])]
    figures = ("accuracy", "balanced_accuracy", "standard_error", "error_sureness", "sure_errors")
    return Evidence(
        samples=int(row["samples"]),
        class_counts=counts,
        predicted_counts=predicted,  # type: ignore[arg-type]
        pairs=pairs,
        lost=float(row["lost"]),
        sided=Flatness(**{name: float(row[f"sided_{name}"]) for name in Flatness.__dataclass_fields__}),
        **{name: float(row[name]) for name in figures},
    )


def verdicts_of(row: Row) -> dict[str, Verdict]:
    """What the audit said: its first asking, and whether others confirmed a shortcut."""
    first = decide(evidence_of(row))
    again = Verdict("yes" if str(row["confirmed"]) == "True" else "no", 0.5, [])
    return confirmed(first, [{"shortcut": again}])


def _pair(figures: dict[str, str]) -> PairEvidence:
    whole = {name: int(figures[name]) for name in ("samples", "against")}
    shares = {name: float(value) for name, value in figures.items() if name not in whole}
    return PairEvidence(classes=(0, 1), **whole, **shares)  # type: ignore[arg-type]


def truth_of(row: Row) -> dict[str, bool]:
    """What was planted."""
    return {
        "shortcut": float(row["minority"]) > 0,
        "label_noise": float(row["noise"]) > 0,
        "long_tail": float(row["tail"]) >= 10,
    }


def verdict_table(rows: Sequence[Row]) -> str:
    """Per kind of data: cases, and how often each planted trouble was named, missed or left open."""
    found = [(row, verdicts_of(row)) for row in rows]
    kinds, body = grouped(found, lambda pair: str(pair[0]["kind"])), []
    for kind in sorted(kinds, key=lambda kind: (kind.count("+"), kind)):
        said = (_counts([verdicts[trouble] for _, verdicts in kinds[kind]]) for trouble in PLANTED)
        body.append([kind.replace("noise", "wrong labels").replace("+", " + "), str(len(kinds[kind])), *said])
    titles = ["data", "cases", *(f"{TITLES[kind]}: yes / cannot tell / no" for kind in PLANTED)]
    return markdown(titles, body)


def detail_table(rows: Sequence[Row]) -> str:
    """The same of single troubles by rate, size and origin of the features."""
    found = [(row, verdicts_of(row)) for row in rows]
    body = []
    for title, kind, is_chosen in _slices():
        cases = [verdicts[kind] for row, verdicts in found if is_chosen(row)]
        if cases:
            body.append([title, TITLES[kind], str(len(cases)), _counts(cases)])
    return markdown(["cases", "asked about", "number", "yes / cannot tell / no"], body)


def regret_table(rows: Sequence[Row]) -> str:
    """Mean and worst regret against the best of CE, LA and the oracle: in the worst group, and in mean accuracy."""
    harmful = [row for row in rows if is_harmful(row)]
    plain = [row for row in rows if float(row["minority"]) == 0]
    body = []
    for name in RIVALS:
        if not any(row.get(f"{name}_worst") for row in rows):
            continue
        cells = [name]
        for part in (harmful, plain):
            for figure in ("worst", "accuracy"):
                lost = [_regret(row, name, figure) for row in part if row.get(f"{name}_{figure}")]
                cells.append(f"{100 * np.mean(lost):.1f} / {100 * np.max(lost):.1f}" if lost else "")
        body.append(cells)
    titles = [
        f"{data}, {figure}" for data in ("harmful shortcut", "no shortcut") for figure in ("worst group", "accuracy")
    ]
    return markdown(["head", *titles], body)


def is_harmful(row: Row) -> bool:
    """Whether a shortcut was planted that costs logit adjustment points in the worst group."""
    return float(row["minority"]) > 0 and float(row["oracle_worst"]) - float(row["la_worst"]) >= HARMFUL


def _regret(row: Row, name: str, figure: str) -> float:
    best = max(float(row[f"{rival}_{figure}"]) for rival in ("ce", "la", "oracle"))
    return max(best - float(row[f"{name}_{figure}"]), 0.0)


def _counts(verdicts: Sequence[Verdict]) -> str:
    return " / ".join(str(sum(v.answer == answer for v in verdicts)) for answer in ("yes", "cannot tell", "no"))


def _slices() -> list[tuple[str, str, Callable[[Row], bool]]]:
    """Titles of single troubles, what is asked about them, and which cases they are."""
    slices: list[tuple[str, str, Callable[[Row], bool]]] = []
    for rate in (0.01, 0.05, 0.1):
        slices.append((f"shortcut, minority {rate:.0%}", "shortcut", partial(_is, kind="shortcut", minority=rate)))
    for sizes in SIZES:
        title = "shortcut, {} to {} samples".format(*sizes)
        slices.append((title, "shortcut", partial(_is, kind="shortcut", sizes=sizes)))
    for rate in (0.05, 0.1, 0.2, 0.3, 0.4):
        slices.append((f"{rate:.0%} wrong labels", "label_noise", partial(_is, kind="noise", noise=rate, sided=False)))
    for rate in (0.15, 0.3):
        title = f"{rate:.0%} of one class's labels given to another"
        slices.append((title, "label_noise", partial(_is, kind="noise", noise=rate, sided=True)))
    for sizes in SIZES:
        title = "no shortcut, {} to {} samples".format(*sizes)
        slices.append((title, "shortcut", partial(_is, minority=0.0, sizes=sizes)))
    return slices


def _is(
    row: Row, kind: str = "", sizes: tuple[int, int] = (0, 10**9), sided: bool | None = None, **rates: float
) -> bool:
    right_kind = kind in ("", row["kind"]) and sided in (None, row["flips"] == "sided")
    return (
        right_kind and sizes[0] <= int(row["samples"]) < sizes[1] and all(float(row[k]) == v for k, v in rates.items())
    )


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


def left_out(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One row per case with the answers of limits that were fitted without its set; synthetic sets are one."""
    cases = [Judged(row["pool"], evidence_of(row), truth_of(row)) for row in rows]
    answers = []
    for name in sorted({family(case.pool) for case in cases}):
        limits = fit_limits([case for case in cases if family(case.pool) != name])
        for case in (case for case in cases if family(case.pool) == name):
            found = decide(case.evidence, limits)
            planted = {f"{kind}_planted": case.truth[kind] for kind in PLANTED}
            answers.append(
                {"set": name, "pool": case.pool, **planted, **{kind: found[kind].answer for kind in PLANTED}}
            )
    return answers


def family(pool: str) -> str:
    """The set a pool belongs to: the synthetic ones are drawn by one recipe."""
    return "gaussian" if pool.startswith("gaussian") else pool


def left_out_table(rows: Sequence[Row]) -> str:
    """Named and false alarms per set, each judged by limits fitted to the other sets; from the rows of `left_out`."""
    body = []
    for name in [*sorted({row["set"] for row in rows}), "all"]:
        chosen = [row for row in rows if name in ("all", row["set"])]
        body.append([name, str(len(chosen)), *(_named(chosen, kind) for kind in PLANTED)])
    titles = ["set left out", "cases", *(f"{TITLES[kind]}: named; alarms" for kind in PLANTED)]
    return markdown(titles, body)


def _named(rows: Sequence[Row], kind: str) -> str:
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
