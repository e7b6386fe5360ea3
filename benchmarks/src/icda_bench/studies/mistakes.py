"""Whether what a finished run knows of its training samples finds the wrong labels, such as those that people gave."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.explain.margins import run_pass, sample_strengths
from icda.losses import ICDALoss
from icda.methods.base import Method
from icda.methods.cross_fitted import CrossFittedMethod
from icda.methods.meta_icda import MetaICDAMethod
from icda.training.evaluation import auroc
from icda.training.run import load_folder
from icda_bench.ledger_tables import SHORT_NAMES
from icda_bench.markdown import grouped, markdown, percent, spread
from icda_bench.rows import write_rows

WAYS = {"held_out": "held-out answer", "strength": "strength", "loss": "loss at the end"}


@dataclass
class Arguments:
    """Read off finished runs how well held-out answers, strengths and losses mark the wrong labels of their samples."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished runs on a task that knows its wrong labels."""
    out: Path | None = None
    """CSV file to write (benchmarks/results/mistakes.csv is ours)."""


@dataclass(frozen=True)
class MistakesRow:
    """One run: the share of its labels that are wrong, and AUROCs for them; empty where a method has no such figure.

    `held_out` is of a low probability of the given label, by networks that have not learned from the sample; `strength` of
    a low strength where metadata teach it, of a high one by angles; `loss` of a high one at the end of training.
    """

    task: str
    method: str
    seed: int
    wrong: float
    held_out: float | None
    strength: float | None
    loss: float | None


def measure_mistakes(folders: Iterable[Path]) -> list[MistakesRow]:
    """Clean labels are read here and nowhere else: the runs were not shown them."""
    rows = []
    for folder in folders:
        config, task, networks, method = load_folder(folder)
        train = task.train
        if train.clean_targets is None:
            raise InputError(f"{folder} was trained on {config.task}, which does not know its wrong labels.")
        wrong = train.targets != train.clean_targets
        seen = run_pass(method, networks, train)
        scores = _held_out(method, train.targets)
        scores["loss"] = F.cross_entropy(seen.logits.double(), seen.targets, reduction="none")
        if isinstance(method.criterion, ICDALoss):
            strengths = sample_strengths(method, seen).per_sample.double()
            scores["strength"] = -strengths if isinstance(method, MetaICDAMethod) else strengths
        areas = {name: auroc(values, wrong) for name, values in scores.items()}
        found = (None if areas.get(name) is None else round(float(areas[name] or 0), 4) for name in WAYS)
        share = round(float(wrong.double().mean()), 4)
        rows.append(MistakesRow(config.task, config.method, config.seed, share, *found))
    return rows


def _held_out(method: Method, targets: Tensor) -> dict[str, Tensor]:
    """How unlikely the given label is to networks that have not learned from the sample, where a method has some."""
    if not isinstance(method, CrossFittedMethod) or method.evidence is None:
        return {}
    likely = method.evidence.logits.double().log_softmax(1)
    return {"held_out": -likely[torch.arange(len(targets)), targets]}


def mistakes_table(rows: Iterable[MistakesRow]) -> str:
    """Mean ± standard deviation over seeds of each AUROC, by task and method."""
    body = []
    for (task, method), mine in grouped(rows, lambda row: (row.task, row.method)).items():
        areas = [[value for row in mine if (value := getattr(row, name)) is not None] for name in WAYS]
        titles = (task, SHORT_NAMES.get(method, method), percent(mine[:1], "wrong"))
        body.append([*titles, *(spread(values, digits=3) for values in areas)])
    return markdown(["task", "method", "wrong labels, %", *(f"AUROC of {name}" for name in WAYS.values())], body)


def run(options: Arguments) -> None:
    if not options.runs:
        raise InputError(
            "name the folders of finished runs, such as runs/bench/cpu/cifar10n_*_small/twin_labels/seed*."
        )
    rows = measure_mistakes(options.runs)
    print(mistakes_table(rows))
    if options.out is not None:
        write_rows(options.out, rows, machine=True)
