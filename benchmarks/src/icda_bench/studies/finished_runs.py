"""What finished runs know of their training samples, though nobody told them: groups, and wrong labels.

Samples that contradict a shortcut should have high strengths. Held-out answers, strengths and losses should mark wrong
labels, such as those that people gave.
"""

import math
from collections.abc import Iterable
from pathlib import Path

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.explain.margins import run_pass, sample_strengths
from icda.functional.strength import direct_strength
from icda.losses import ICDALoss
from icda.methods.base import Method
from icda.methods.cross_fitted import CrossFittedMethod
from icda.methods.meta_icda import MetaICDAMethod
from icda.training.evaluation import auroc, minority
from icda.training.run import load_folder
from icda_bench.ledger_tables import SHORT_NAMES
from icda_bench.markdown import columns, grouped, markdown, numbers, percent, spread
from icda_bench.options import FinishedRuns
from icda_bench.rows import Row, publish

WAYS = {"held_out": "held-out answer", "strength": "strength", "loss": "loss at the end"}


def measure_group_strengths(folders: Iterable[Path]) -> list[Row]:
    """A row for each group of each run, given the groups or not: how much of it is learned, its mean strength alpha_i, and
    `auroc`, the chance that a sample of the group has a higher strength than another sample of its classes; empty where the
    group is all there is of them.
    """
    rows: list[Row] = []
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
            order = None if mine[fellows].all() else roc_auc_score(mine[fellows], strengths[fellows])
            rows.append(
                {
                    **{"task": config.task, "method": config.method, "seed": config.seed, "group": name},
                    "samples": int(mine.sum()),
                    "share_of_class": round(float(mine.sum() / fellows.sum()), 4),
                    "train_accuracy": round(float(right[mine].float().mean()), 4),
                    "strength": round(float(strengths[mine].mean()), 4),
                    "auroc": None if order is None else round(float(order), 4),
                }
            )
    return rows


def group_strengths_table(rows: Iterable[Row]) -> str:
    """Mean ± standard deviation over seeds; the AUROC of the smaller groups only, as that of two groups sums to one."""
    body = []
    for place, mine in grouped(rows, columns("task", "method", "group")).items():
        strength, order = (spread(numbers(mine, name), digits=3) for name in ("strength", "auroc"))
        order = order if float(mine[0]["share_of_class"]) < 0.5 else ""
        body.append([*place, str(mine[0]["samples"]), percent(mine, "train_accuracy"), strength, order])
    titles = ["task", "method", "group", "samples", "learned, %", "mean strength", "AUROC in its class"]
    return markdown(titles, body)


def measure_mistakes(folders: Iterable[Path]) -> list[Row]:
    """The share of each run's labels that are wrong, and AUROCs for them; empty where a method has no such figure.

    `held_out` is of a low probability of the given label, by networks that have not learned from the sample; `strength` of
    a low strength where metadata teach it, of a high one by angles; `loss` of a high one at the end of training. Clean
    labels are read here and nowhere else: the runs were not shown them.
    """
    rows: list[Row] = []
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
        found = {name: None if areas.get(name) is None else round(float(areas[name] or 0), 4) for name in WAYS}
        run = {"task": config.task, "method": config.method, "seed": config.seed}
        rows.append({**run, "wrong": round(float(wrong.double().mean()), 4), **found})
    return rows


def _held_out(method: Method, targets: Tensor) -> dict[str, Tensor]:
    """How unlikely the given label is to networks that have not learned from the sample, where a method has some."""
    if not isinstance(method, CrossFittedMethod) or method.evidence is None:
        return {}
    likely = method.evidence.logits.double().log_softmax(1)
    return {"held_out": -likely[torch.arange(len(targets)), targets]}


def mistakes_table(rows: Iterable[Row]) -> str:
    """Mean ± standard deviation over seeds of each AUROC, by task and method."""
    body = []
    for (task, method), mine in grouped(rows, columns("task", "method")).items():
        titles = (task, SHORT_NAMES.get(method, method), percent(mine[:1], "wrong"))
        body.append([*titles, *(spread(numbers(mine, name), digits=3) for name in WAYS)])
    return markdown(["task", "method", "wrong labels, %", *(f"AUROC of {name}" for name in WAYS.values())], body)


def noise_separation(folder: Path) -> Row:
    """AUROC for mislabelled training samples of the learned strength, of the angle's, and of the plain loss.

    A learned strength that is low marks a wrong label: what the metadata contradict gets no margin.
    """
    config, task, networks, method = load_folder(folder)
    if not isinstance(method, MetaICDAMethod) or task.train.clean_targets is None:
        raise InputError(f"{folder} is not a Meta-ICDA run on a task with known label noise.")
    seen = run_pass(method, networks, task.train)
    scores = {
        "low_learned_strength": -sample_strengths(method, seen).per_sample,
        "direct_strength": direct_strength(seen.features, seen.targets, seen.weight).per_sample,
        "loss": F.cross_entropy(seen.logits, seen.targets, reduction="none"),
    }
    wrong = task.train.targets != task.train.clean_targets
    return {"seed": config.seed} | {name: float(roc_auc_score(wrong, value)) for name, value in scores.items()}


def separations(folder: Path) -> dict[str, float]:
    """AUROC of a low strength for wrong labels, and of a high one, among right labels, for those against the shortcut."""
    _, task, networks, method = load_folder(folder)
    clean, groups = task.train.clean_targets, task.train.groups
    assert clean is not None, "the task of this study knows its wrong labels"
    assert groups is not None, "and its groups"
    strengths = sample_strengths(method, run_pass(method, networks, task.train)).per_sample.double()
    right, few = task.train.targets == clean, minority(clean, groups)
    found = {"withdraws_wrong": auroc(-strengths, ~right), "pushes_minority": auroc(strengths[right], few[right])}
    return {name: math.nan if area is None else area for name, area in found.items()}


def run_strengths(options: FinishedRuns) -> None:
    runs = _named(options.runs, "runs/bench/cpu/cmnist/icda/seed0-*")
    publish(group_strengths_table, measure_group_strengths(runs), options.out)


def run_mistakes(options: FinishedRuns) -> None:
    runs = _named(options.runs, "runs/bench/cpu/cifar10n_*_small/twin_labels/seed*")
    publish(mistakes_table, measure_mistakes(runs), options.out)


def _named(runs: tuple[Path, ...], example: str) -> tuple[Path, ...]:
    if not runs:
        raise InputError(f"name the folders of finished runs, such as {example}.")
    return runs
