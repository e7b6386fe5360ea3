"""What answers of a person are worth: the worst group over the number of answers, with people simulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from icda.auditing.inputs import DECAY
from icda.auditing.plan import plan_by_groups
from icda.auditing.questions import choose
from icda.data.registry import data_root
from icda.heads.blocks import BlockRows
from icda.heads.problem import rebalance, with_prior
from icda.heads.solver import Fittable
from icda.heads.spreading import ClassLogits, reading_head
from icda.settings import check_names
from icda_bench.markdown import markdown
from icda_bench.options import Root
from icda_bench.rows import Row
from icda_bench.studies.verdicts.cases import Case
from icda_bench.studies.verdicts.judge import HARMFUL
from icda_bench.studies.verdicts.methods import CaseFit
from icda_bench.studies.verdicts.plans import plans_of
from icda_bench.studies.verdicts.run import ALL, fill_cases

ANSWERS = (12, 24, 48, 96, 192)
DOZEN = 12
SET_ON = ("digits", "mnist", "cifar10", "tiny_imagenet")  # settings were decided on these and on gaussian0 to gaussian7


class Person(NamedTuple):
    """How somebody answers: shares of wrong and of skipped answers, and what is asked about."""

    wrong: float = 0.0
    skipped: float = 0.0
    merged: bool = False  # two values of the attribute are taken for one


PEOPLE = {"right": Person(), "wrong": Person(wrong=0.1), "skips": Person(skipped=0.2), "half": Person(merged=True)}
WAYS = ("ours", "random", "groups")  # ours; our spread of random answers; random answers, a plain reader, group weights


@dataclass
class Arguments:
    """Simulate people who answer about planted attributes; fit with 12 to 192 answers, beside no and all attributes."""

    pools: tuple[str, ...] = ()
    """Only these pools; by default all."""
    cases: int | None = None
    """Only so many cases of each pool."""
    root: Root = None
    cache: Path = Path("runs/verdicts")
    """Folder for embeddings, computed once."""
    out: Path = Path("runs/asking/asking.csv")
    """CSV file to fill (benchmarks/results/asking.csv is ours); finished cases are kept."""
    figure: Path | None = None
    """Draw the worst group over the number of answers into this file."""


def run(options: Arguments) -> None:
    check_names(options.pools, ALL, "icda bench asking", "pool")
    plans = {
        name: [plan for plan in plans_of(name) if plan.attribute and plan.size <= 5000][: options.cases]
        for name in options.pools or ALL
    }
    rows = fill_cases(options.out, plans, case_rows, data_root(options.root), options.cache)
    print(share_table(rows), person_table(rows), sep="\n\n")
    if options.figure is not None:
        draw_curve(rows, options.figure)


class AskedFit(CaseFit):
    """A case about which somebody is asked."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.rows = BlockRows.of_memory(self.features, self.targets, len(self.classes))
        self.shown = ClassLogits.of(self.rows, DECAY * self.features.shape[1])


def case_rows(case: Case) -> list[Row]:
    """One row for logit adjustment, one for all attributes, and one per person, way and number of answers."""
    fit = AskedFit(case)
    blank = {"enough": "", "read": ""}
    whole = with_prior(fit.problem, torch.from_numpy(case.attributes))
    rows: list[Row] = [
        {"way": "none", "person": "", "answers": 0, **blank, **fit.judged(fit.problem)},
        {"way": "all", "person": "", "answers": len(case.targets), **blank, **fit.judged(whole)},
    ]
    for name, person in PEOPLE.items():
        if person.merged and case.attributes.max() < 2:
            continue
        for way in WAYS if name == "right" else WAYS[:1]:
            for answers, codes, enough in _asked(fit, person, way):
                problem, read = _treated(fit, codes, way)
                row = {"way": way, "person": name, "answers": answers, "enough": enough, "read": round(read, 4)}
                rows.append({**row, **fit.judged(problem)})
    return rows


def _asked(fit: AskedFit, person: Person, way: str) -> Iterator[tuple[int, np.ndarray, bool]]:
    """The answers so far (N,), -1 where there is none, at each number of `ANSWERS`."""
    generator = np.random.default_rng([fit.case.plan.seed, 9])
    truth = fit.case.attributes.astype(np.int64)
    if person.merged:
        truth = np.minimum(truth, int(truth.max()) - 1)
    values = int(truth.max()) + 1
    slips = generator.random(len(truth)) < person.wrong
    said = np.where(slips, (truth + generator.integers(1, max(values, 2), len(truth))) % values, truth)
    silent = generator.random(len(truth)) < person.skipped
    drawn = generator.permutation(len(truth))
    codes, skip = np.full(len(truth), -1), set[int]()
    for answers in range(DOZEN, ANSWERS[-1] + 1, DOZEN):
        if way == "ours":
            found = choose(fit.rows, fit.shown, codes.copy(), DOZEN, skip)
            index, enough = found.index, found.enough
        else:
            index, enough = drawn[answers - DOZEN : answers], False
        codes[index] = np.where(silent[index], -1, said[index])
        skip |= set(index[silent[index]].tolist())
        if answers in ANSWERS:
            yield answers, codes, enough


def _treated(fit: AskedFit, codes: np.ndarray, way: str) -> tuple[Fittable, float]:
    """The problem with what the answers call for, and the share of samples whose attribute is then right."""
    known = codes >= 0
    if len(np.unique(codes[known])) < 2:
        return fit.problem, 0.0
    if way == "groups":
        own, values = fit.features[known], torch.from_numpy(np.unique(codes[known], return_inverse=True)[1])
        targets = fit.targets[known].unique(return_inverse=True)[1]
        reader = reading_head(own, targets, values, int(targets.max()) + 1, fit.features.shape[1] / int(known.sum()))
        attributes = reader.logits(fit.features).argmax(1)
        return rebalance(fit.problem, attributes), _share_right(attributes, fit)
    rows = fit.rows.with_groups(np.where(known, codes, np.nan).astype(float))
    plan = plan_by_groups(rows, fit.shown).noted(rows)
    if plan.treatment.attributes is None:
        return fit.problem, 0.0
    return plan.problem(rows, fit.problem.decay), _share_right(plan.treatment.attributes, fit)


def _share_right(attributes: torch.Tensor, fit: AskedFit) -> float:
    return float((attributes.numpy() == fit.case.attributes).mean())


Key = tuple[str, str]


def gains(rows: Sequence[Row], way: str, person: str, answers: int) -> dict[Key, float]:
    """By case: the share of what all attributes gain in the worst group over none, where that is `HARMFUL` points."""
    worst = {
        name: {(row["pool"], row["seed"]): float(row["worst"]) for row in rows if row["way"] == name}
        for name in ("none", "all")
    }
    chosen = [row for row in rows if (row["way"], row["person"], int(row["answers"])) == (way, person, answers)]
    shares = {}
    for row in chosen:
        key = row["pool"], row["seed"]
        gain = worst["all"][key] - worst["none"][key]
        if float(row["minority"]) > 0 and gain >= HARMFUL:
            shares[key] = float(np.clip((float(row["worst"]) - worst["none"][key]) / gain, -1, 1.2))
    return shares


def was_set_on(pool: str) -> bool:
    return pool in SET_ON or pool.startswith("gaussian")


def share_table(rows: Sequence[Row]) -> str:
    """Mean share of the gain over the number of answers, sets on which settings were decided apart from the others."""
    body = []
    for title, person, way in (
        ("chosen by icda, all right", "right", "ours"),
        ("10 % wrong", "wrong", "ours"),
        ("20 % skipped", "skips", "ours"),
        ("two values taken for one", "half", "ours"),
        ("drawn at random, all right", "right", "random"),
        ("drawn at random, plain reader, group weights", "right", "groups"),
    ):
        for other in (True, False):
            cells = []
            for answers in ANSWERS:
                shares = [v for key, v in gains(rows, way, person, answers).items() if was_set_on(key[0]) != other]
                cells.append(f"{100 * np.mean(shares):.0f} ({len(shares)})" if shares else "")
            body.append([title, "other sets" if other else "sets used to decide", *cells])
    return markdown(["answers", "data", *map(str, ANSWERS)], body)


def person_table(rows: Sequence[Row]) -> str:
    """Accuracy beside logit adjustment where the attribute goes with no class: mean and worst difference in points."""
    rows = [row for row in rows if float(row["minority"]) == 0]
    plain = {(row["pool"], row["seed"]): float(row["accuracy"]) for row in rows if row["way"] == "none"}
    body = []
    for answers in ANSWERS:
        chosen = [r for r in rows if (r["way"], r["person"], int(r["answers"])) == ("ours", "right", answers)]
        lost = [100 * (float(row["accuracy"]) - plain[row["pool"], row["seed"]]) for row in chosen]
        body.append([str(answers), str(len(lost)), f"{np.mean(lost):+.1f}", f"{np.min(lost):+.1f}"] if lost else [])
    return markdown(["answers", "cases", "mean", "worst"], [cells for cells in body if cells])


def draw_curve(rows: Sequence[Row], out: Path) -> None:
    """Mean worst group over the number of answers, with 95 % intervals over cases."""
    from icda.extras import require

    plot = require("matplotlib.pyplot", "explain", "figures")
    rows = [row for row in rows if float(row["minority"]) > 0]
    figure, axes = plot.subplots(figsize=(6.4, 3.8), dpi=150)
    for label, way, person in (
        ("questions chosen by icda", "ours", "right"),
        ("10 % of the answers wrong", "ours", "wrong"),
        ("questions drawn at random", "random", "right"),
        ("random, group weights", "groups", "right"),
    ):
        points = [list(gains(rows, way, person, answers).values()) for answers in ANSWERS]
        means = [100 * np.mean(shares) for shares in points]
        reach = [196 * np.std(shares) / len(shares) ** 0.5 for shares in points]
        axes.errorbar(ANSWERS, means, reach, label=label, marker="o", markersize=4, capsize=2)
    axes.set(xscale="log", xlabel="answers of a person", ylabel="share of the gain of all group labels, %")
    axes.set_xticks(ANSWERS, map(str, ANSWERS))
    axes.minorticks_off()
    axes.axhline(100, color="grey", linewidth=0.8)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
