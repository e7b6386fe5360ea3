"""Whether a run's strengths know the groups it was never told: those that contradict a shortcut should have high ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import tyro
from sklearn.metrics import roc_auc_score

from icda.errors import InputError
from icda.explain.margins import run_pass, sample_strengths
from icda.training.run import load_folder
from icda_bench.markdown import grouped, markdown, percent, spread
from icda_bench.rows import write_rows


@dataclass
class Arguments:
    """Read the strengths of the training samples off finished runs, group by group."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished runs on a task with groups."""
    out: Path | None = None
    """CSV file to write (benchmarks/results/group_strengths.csv is ours)."""


@dataclass(frozen=True)
class StrengthRow:
    """One group of a run's training set: how much of it is learned, its mean strength alpha_i, and their order.

    `auroc` is the chance that a sample of the group has a higher strength than another sample of its classes; empty where
    the group is all there is of them.
    """

    task: str
    method: str
    seed: int
    group: str
    samples: int
    share_of_class: float
    train_accuracy: float
    strength: float
    auroc: float | None


def measure_group_strengths(folders: Iterable[Path]) -> list[StrengthRow]:
    """Read the strengths of all training samples off finished runs, group by group, given the groups or not."""
    rows: list[StrengthRow] = []
    for folder in folders:
        config, task, networks, method = load_folder(folder)
        groups = task.train.groups
        if groups is None:
            raise InputError(f"{folder} was trained on {config.task}, which has no groups to compare strengths by.")
        seen = run_pass(method, networks, task.train)
        strengths = sample_strengths(method, seen).per_sample
        right = seen.predicted == seen.targets
        for number, name in enumerate(task.group_names or ()):
            mine = groups == number
            if not mine.any():
                continue
            fellows = (seen.targets[:, None] == seen.targets[mine].unique()).any(1)
            share = round(float(mine.sum() / fellows.sum()), 4)
            learned, strength = (round(float(values[mine].mean()), 4) for values in (right.float(), strengths))
            area = None if mine[fellows].all() else round(float(roc_auc_score(mine[fellows], strengths[fellows])), 4)
            place = (config.task, config.method, config.seed, name, int(mine.sum()))
            rows.append(StrengthRow(*place, share, learned, strength, area))
    return rows


def group_strengths_table(rows: Iterable[StrengthRow]) -> str:
    """Mean ± standard deviation over seeds; the AUROC of the smaller groups only, as that of two groups sums to one."""
    body = []
    for place, mine in grouped(rows, lambda row: (row.task, row.method, row.group)).items():
        strength = spread([row.strength for row in mine], digits=3)
        auroc = spread([row.auroc for row in mine if row.auroc is not None], digits=3)
        order = auroc if mine[0].share_of_class < 0.5 else ""
        body.append([*place, str(mine[0].samples), percent(mine, "train_accuracy"), strength, order])
    titles = ["task", "method", "group", "samples", "learned, %", "mean strength", "AUROC in its class"]
    return markdown(titles, body)


def run(options: Arguments) -> None:
    if not options.runs:
        raise InputError("name the folders of finished runs, such as runs/bench/cpu/cmnist/icda/seed0-*.")
    rows = measure_group_strengths(options.runs)
    print(*rows, sep="\n")
    if options.out is not None:
        write_rows(options.out, rows, machine=True)
