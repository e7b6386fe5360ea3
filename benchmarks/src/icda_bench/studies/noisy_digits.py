"""Four studies of small noisy tasks: the best test epoch, few metadata, long trainings, and a shortcut beside the noise.

Each fills a CSV file training by training; those that the file holds are not run again.
"""

import math
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from icda.data import Split, Task
from icda.data.generators import generator_for
from icda.results import RunResult
from icda.training import TrainConfig, train
from icda.training.run import load_task
from icda_bench.ledger_tables import SHORT_NAMES
from icda_bench.markdown import columns, grouped, markdown, numbers, percent, spread
from icda_bench.options import StudyFile
from icda_bench.rows import Row, fill
from icda_bench.studies.finished_runs import separations

TASK = "digits_flip_noise"

# The last epoch and the best. The latter is no fair figure: nobody has the test set while training. It is here because
# tables of noise papers are often made so, and can then not be compared with last epochs.

METHODS = ("cross_entropy", "icda")
COSINE = {"learning_rate": 0.1, "schedule": "cosine"}
RECIPES: dict[str, dict[str, Any]] = {  # the recipes of the tables
    TASK: {"model": "small_cnn", "epochs": 30},
    "cifar10_flip_40_small": {"model": "resnet8", "epochs": 30, "batch_size": 64} | COSINE,
}


@dataclass(frozen=True)
class BestEpochArguments(StudyFile):
    """What a table gains that reports the best test epoch."""

    seeds: int = 3
    """Seeds 0, 1, ... of each cell."""
    tasks: tuple[str, ...] = tuple(RECIPES)
    """Tasks with wrong labels, of those with a recipe here."""


def watched(**settings: Any) -> tuple[RunResult, list[float]]:
    """Train with the test split in the place of validation, which decides nothing: its accuracy after every epoch."""
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(out=folder, **settings)
        task = load_task(config)
        result = train(config, task=replace(task, validation=task.test))
    return result, [float(record["validation_accuracy"]) for record in result.history or ()]


def measure_best_epoch(task: str, method: str, seed: int) -> Row:
    """Test accuracies of one training: at its end, and in the epoch where it was highest."""
    _, accuracies = watched(task=task, method=method, seed=seed, **RECIPES[task])
    best = max(accuracies)
    return {"last": accuracies[-1], "best": best, "best_epoch": accuracies.index(best)}


def best_epoch_table(rows: Iterable[Row]) -> str:
    """Test accuracy of the last epoch beside that of the best, which nobody could have chosen."""
    body = []
    for (task, method), mine in grouped(rows, columns("task", "method")).items():
        body.append([task, SHORT_NAMES[method], percent(mine, "last"), percent(mine, "best")])
    return markdown(["task", "method", "last epoch", "best test epoch, not a fair figure"], body)


def run_best_epoch(options: BestEpochArguments) -> None:
    cells = [(task, method, seed) for seed in range(options.seeds) for task in options.tasks for method in METHODS]
    print(best_epoch_table(fill(options.out, ("task", "method", "seed"), cells, measure_best_epoch)))


# How far metadata may be few or wrong before a method that learns from them is led astray.

LEARNERS = ("meta_icda_signed", "meta_weight_net")
CASES = ((10, 0.0), (5, 0.0), (2, 0.0), (10, 0.1))  # samples per class, share of wrong labels


@dataclass(frozen=True)
class FewMetadataArguments(StudyFile):
    """Train with few metadata, or wrong ones."""

    seeds: tuple[int, ...] = (10, 11)
    """Seeds; settings of signed Meta-ICDA were chosen on 0 and 1."""
    epochs: int = 30
    """Length of each training."""


def fewer(task: Task, per_class: int, wrong: float, seed: int) -> Task:
    """The task with `per_class` metadata of each class, of which a share `wrong` gets the label of the next class."""
    metadata = task.metadata
    assert metadata is not None, "the task of this study has metadata"
    classes = metadata.targets
    chosen = torch.cat([(classes == k).nonzero().flatten()[:per_class] for k in range(task.num_classes)])
    targets = classes[chosen].clone()
    generator = generator_for(seed, "few_metadata")
    mislabelled = torch.randperm(len(targets), generator=generator)[: round(wrong * len(targets))]
    targets[mislabelled] = (targets[mislabelled] + 1) % task.num_classes
    return replace(task, metadata=Split(metadata.source, metadata.rows[chosen], targets))


def measure_few_metadata(per_class: int, wrong: float, method: str, seed: int, epochs: int) -> Row:
    """Test accuracy with `per_class` metadata of each class, a share `wrong` of them mislabelled."""
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(task=TASK, method=method, seed=seed, epochs=epochs, out=folder)
        result = train(config, task=fewer(load_task(config), per_class, wrong, seed))
    return {"accuracy": result.metric("accuracy") or 0.0}


def few_metadata_table(rows: Iterable[Row]) -> str:
    """Test accuracy by the number of metadata and the share of wrong ones among them."""
    body = []
    for (per_class, wrong), mine in grouped(rows, columns("per_class", "wrong")).items():
        by_method = grouped(mine, itemgetter("method"))
        cells = (percent(by_method.get(method, []), "accuracy") for method in LEARNERS)
        body.append([per_class, f"{float(wrong):.0%}", *cells])
    return markdown(["metadata per class", "of them wrong", *(SHORT_NAMES[method] for method in LEARNERS)], body)


def run_few_metadata(options: FewMetadataArguments) -> None:
    cells = [(*case, method, seed) for seed in options.seeds for case in CASES for method in LEARNERS]
    measure = partial(measure_few_metadata, epochs=options.epochs)
    print(few_metadata_table(fill(options.out, ("per_class", "wrong", "method", "seed"), cells, measure)))


# What is left of signed Meta-ICDA when training goes on: its parts taken away, and epochs chosen on metadata.

SETTINGS: dict[str, dict[str, Any]] = {
    "memory, beta 10": {},
    "no memory, beta 5": {"memory": False, "beta": 5.0},
    "no memory, beta 20": {"memory": False, "beta": 20.0},
    "memory, beta 5": {"beta": 5.0},
    "memory, beta 5, withdrawal 3": {"beta": 5.0, "withdrawal": 3.0},
}


@dataclass(frozen=True)
class LongTrainingArguments(StudyFile):
    """Train signed Meta-ICDA for long, with and without its parts."""

    seeds: tuple[int, ...] = (0,)
    """Seeds; settings were chosen on 0 and 1."""
    epochs: tuple[int, ...] = (120,)
    """Lengths of training."""
    forms: tuple[str, ...] = tuple(SETTINGS)
    """Settings of signed Meta-ICDA, of those named here."""


def measure_long_training(form: str, seed: int, epochs: int) -> Row:
    """Test accuracy of the last epoch and of the one with the lowest loss on metadata; AUROC of a low strength for wrong
    labels in the last epoch."""
    method: dict[str, Any] = {"method": "meta_icda_signed", "options": SETTINGS[form], "selection": "metadata_nll"}
    result, accuracies = watched(task=TASK, seed=seed, epochs=epochs, **method)
    chosen = result.selected_epoch
    assert chosen is not None, "a finished run has one"
    assert result.history is not None
    area = float(result.history[-1]["strength_auroc_wrong"])
    accuracy = {"last": accuracies[-1], "selected": accuracies[chosen]}
    return {**accuracy, "selected_epoch": chosen, "auroc_wrong": area}


def long_training_table(rows: Iterable[Row]) -> str:
    """Test accuracy of the last epoch beside that of the epoch chosen on metadata, by settings."""
    body = []
    cells = grouped(rows, lambda row: (int(row["epochs"]), list(SETTINGS).index(row["form"])))
    for (epochs, _), mine in sorted(cells.items()):
        seeds = ", ".join(map(str, sorted(int(row["seed"]) for row in mine)))
        figures = (
            percent(mine, "last"),
            percent(mine, "selected"),
            spread(numbers(mine, "auroc_wrong"), digits=2),
        )
        body.append([mine[0]["form"], str(epochs), seeds, *figures])
    titles = ["settings", "epochs", "seeds", "last epoch", "lowest loss on metadata"]
    return markdown([*titles, "AUROC for wrong labels, last epoch"], body)


def run_long_training(options: LongTrainingArguments) -> None:
    cells = [(form, seed, epochs) for epochs in options.epochs for form in options.forms for seed in options.seeds]
    print(long_training_table(fill(options.out, ("form", "seed", "epochs"), cells, measure_long_training)))


# Whether the sign of learned strengths tells a wrong label, to be withdrawn, from a right one that contradicts a
# shortcut, to be pushed. Both look alike to a network that answers with the colour.

AREAS = ("withdraws_wrong", "pushes_minority")
FORMS = {"ce": "CE", "signed": "Meta-ICDA, signed", "held_out": "signed, with held-out networks"}


@dataclass(frozen=True)
class ShortcutAndNoiseArguments(StudyFile):
    """Train on coloured digits of which a fifth have wrong labels."""

    seeds: int = 3
    """Seeds 0, 1, ..."""
    epochs: int = 30
    """Length of each training."""


def measure_shortcut_and_noise(form: str, seed: int, epochs: int) -> Row:
    """Test figures of one training, and how well its strengths mark both kinds of samples (0.5 is chance)."""
    recipe = TrainConfig(task="digits_coloured_noise", seed=seed, epochs=epochs)
    with tempfile.TemporaryDirectory() as place:
        options: dict[str, Any] = {}
        if form == "held_out":
            options = {"held_out": f"{place}/earlier"}
            train(replace(recipe, method="shortcut_prior", options={"form": "soft"}, out=options["held_out"]))
        method = "cross_entropy" if form == "ce" else "meta_icda_signed"
        result = train(replace(recipe, method=method, options=options, out=f"{place}/run"))
        areas = dict.fromkeys(AREAS, math.nan) if form == "ce" else separations(Path(place) / "run")
    accuracy, worst_group = (result.metric(name) or 0.0 for name in ("accuracy", "worst_group_accuracy"))
    return {"accuracy": accuracy, "worst_group": worst_group, **areas}


def shortcut_and_noise_table(rows: Iterable[Row]) -> str:
    """Accuracy and worst group, and both AUROCs, by form."""
    by_form, body = grouped(rows, itemgetter("form")), []
    for form in (name for name in FORMS if name in by_form):
        mine = by_form[form]
        areas = [numbers(mine, name) for name in AREAS]
        shown = ("" if math.isnan(part[0]) else spread(part, digits=2) for part in areas)
        body.append([FORMS[form], percent(mine, "accuracy"), percent(mine, "worst_group"), *shown])
    titles = ["method", "accuracy", "worst group", "AUROC of a low strength for wrong labels"]
    return markdown([*titles, "AUROC of a high one for right labels that contradict the colour"], body)


def run_shortcut_and_noise(options: ShortcutAndNoiseArguments) -> None:
    cells = [(form, seed) for seed in range(options.seeds) for form in FORMS]
    measure = partial(measure_shortcut_and_noise, epochs=options.epochs)
    print(shortcut_and_noise_table(fill(options.out, ("form", "seed"), cells, measure)))
