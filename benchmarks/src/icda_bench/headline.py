"""The few figures that stand on the front page, each beside plain training and the best alternative."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from icda_bench.ledger import read_ledger
from icda_bench.markdown import grouped, markdown
from icda_bench.rows import read_table
from icda_bench.studies.asking import gains, was_set_on

TITLES = ["what is wrong with the training data", "measured", "plain training", "best alternative", "icda"]
QUESTIONS = 24


@dataclass(frozen=True)
class Contest:
    """One task of a ledger: robust beside all published methods that were given the same."""

    title: str
    measured: str
    link: str
    ledger: str
    task: str
    metric: str
    where: tuple[tuple[str, str], ...] = ()  # columns of the ledger that all rows must have
    given_more: tuple[str, ...] = ()


NAMES = {"elr": "ELR", "logit_adjustment": "logit adjustment", "xrm": "XRM"}
OURS = ("robust", "group_prior", "icda", "meta_icda", "meta_icda_signed", "shortcut_prior", "twin_labels")
CONTESTS = (
    Contest(
        "colour gives the class away (MNIST), no group labels",
        "worst-group accuracy",
        "evidence/shortcuts.md",
        "table6",
        "cmnist",
        "worst_group_accuracy",
        (("attributes", "unknown"), ("selection", "validation_worst_class")),
    ),
    Contest(
        "40 % wrong labels (MNIST), no clean sample",
        "accuracy",
        "evidence/noise.md",
        "noise",
        "mnist_5k_flip_40",
        "accuracy",
        (("epochs", "30"),),
        ("meta_weight_net",),  # given clean samples
    ),
    Contest(
        "classes of 104 to 2 samples (digits)",
        "accuracy",
        "evidence/small_tasks.md#long-tail",
        "demo",
        "digits_lt",
        "accuracy",
    ),
)


def headline_table(results: Path, folder: str = "") -> str:
    """The table; links lead to pages in `folder`."""
    asked = read_table(results / "asking.csv")
    rows = [_asking_row(asked, folder)] if asked else []
    rows += [_row(contest, read_ledger(results / f"{contest.ledger}.csv"), folder) for contest in CONTESTS]
    return markdown(TITLES, rows)


def _asking_row(rows: list[dict[str, str]], folder: str) -> list[str]:
    """How much of the gain of full group labels a person's answers bring, on sets where nothing was decided."""

    def share(way: str) -> str:
        shares = [value for (pool, _), value in gains(rows, way, "right", QUESTIONS).items() if not was_set_on(pool)]
        return f"{100 * np.mean(shares):.0f} %"

    title = f"a spurious correlation; a person answers {QUESTIONS} questions"
    measured = f"[share of the gain that full group labels bring]({folder}evidence/asking.md)"
    return [title, measured, "0 %", f"{share('random')} (random questions)", share("ours")]


def _row(contest: Contest, ledger: Sequence[Mapping[str, str]], folder: str) -> list[str]:
    chosen = [
        row
        for row in ledger
        if row["task"] == contest.task
        and row[contest.metric]
        and all(row[column] == value for column, value in contest.where)
    ]
    means: dict[str, float] = {}
    for (method, _), rows in grouped(chosen, key=lambda row: (row["method"], row["options"])).items():
        mean = 100 * float(np.mean([float(row[contest.metric]) for row in rows]))
        means[method] = max(mean, means.get(method, 0.0))  # of a rival with several settings the best
    not_rivals = ("cross_entropy", *OURS, *contest.given_more)
    rivals = {method: mean for method, mean in means.items() if method not in not_rivals}
    best = max(rivals, key=lambda method: rivals[method])
    return [
        contest.title,
        f"[{contest.measured}]({folder}{contest.link})",
        f"{means['cross_entropy']:.0f} %",
        f"{rivals[best]:.0f} % ({NAMES.get(best, best)})",
        f"{means['robust']:.0f} % (robust)",
    ]
