"""Whether `--method robust` finds what was planted: wrong labels, shortcuts, long tails, pairs of them, and nothing."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from icda.cross_fit.rules import NO, YES
from icda.data import Task, create_task
from icda.data.bias.long_tail import long_tail
from icda.data.bias.noise import noisy_labels
from icda.data.bias.shortcut import plant_shortcut
from icda.data.datasets.digits import coloured_digits
from icda.data.generators import generator_for
from icda.training import TrainConfig, train
from icda_bench.markdown import columns, grouped, markdown, numbers
from icda_bench.options import StudyFile
from icda_bench.rows import Row, fill

# A plant is a kind and a number: per cent of wrong labels, per cent of samples against the shortcut, or a tail's ratio.
NOISE, MARKS = ("flip", "uniform"), ("colour", "patch", "frame", "texture")
ALONE = (
    "clean",
    *(f"{kind}_{rate}" for kind in NOISE for rate in (10, 20, 40, 60)),
    *(f"{kind}_{against}" for kind in MARKS for against in (1, 5, 10, 20)),
    *("tail_10", "tail_50", "tail_100"),
)
PAIRS = (
    *("tail_10+flip_20", "tail_10+flip_40", "tail_10+uniform_40", "tail_50+flip_20"),
    *("tail_10+frame_5", "tail_10+patch_5", "tail_10+texture_10", "tail_50+frame_5"),
    *("colour_5+flip_20", "colour_5+flip_10", "frame_5+flip_20", "frame_10+uniform_20"),
)
FEW = ("clean", "flip_40", "uniform_40", "patch_5", "texture_5", "tail_10")
COSINE = {"model": "resnet8", "epochs": 30, "batch_size": 64, "learning_rate": 0.1, "schedule": "cosine"}
BASES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {  # the plants of each set, and how it is trained
    "digits": (ALONE + PAIRS, {"model": "small_cnn", "epochs": 30}),
    "mnist_5k": (FEW, {"model": "mlp", "epochs": 30}),
    "cifar10_small": (FEW, COSINE),
    "cifar100_small": (FEW, COSINE),
}
CHANCES = {"shortcut": "shortcut_chance", "noise": "label_noise_chance", "tail": "long_tail_chance"}
WORDS = {"flip": "flips", "uniform": "uniform noise", "tail": "tail"}


@dataclass(frozen=True)
class RobustArguments(StudyFile):
    """Train robust, and cross entropy beside it, on planted tasks."""

    bases: tuple[str, ...] = ("digits",)
    """Sets to plant in: digits, mnist_5k, cifar10_small, cifar100_small."""
    seeds: tuple[int, ...] = (20, 21, 22, 23, 24)
    """Seeds of data and training; the rule was made on 20 to 24."""


def found(row: Row) -> set[str]:
    """What was called wrong with the data."""
    return {kind for kind in CHANCES if float(row[kind]) >= YES}


def is_unsure(row: Row) -> bool:
    return any(NO < float(row[kind]) < YES for kind in ("shortcut", "noise"))


def is_right(row: Row) -> bool:
    """Whether all that was planted was found and nothing else; beside a shortcut wrong labels may stay unnoticed."""
    truth = planted(row["plant"])
    return found(row) == truth or ("shortcut" in truth and found(row) == truth - {"noise"})


def planted(plant: str) -> set[str]:
    """What is wrong with a task: of shortcut, noise, tail.

    >>> sorted(planted("tail_10+patch_5")), planted("clean")
    (['shortcut', 'tail'], set())
    """
    kinds = {part.split("_")[0] for part in plant.split("+")} - {"clean"}
    return {"noise" if kind in NOISE else "shortcut" if kind in MARKS else kind for kind in kinds}


def make_task(base: str, plant: str, seed: int) -> Task:
    """The set `base` with what `plant` names, part by part."""
    task = create_task(base, None, seed)
    for part in plant.split("+"):
        kind, _, amount = part.partition("_")
        if kind == "colour":
            task = coloured_digits("digits_coloured", seed, 1 - float(amount) / 100)
        elif kind in MARKS:
            task = plant_shortcut(task, kind, 1 - float(amount) / 100, seed)  # type: ignore[arg-type]
        elif kind == "tail":
            rows = long_tail(task.train.targets, float(amount), generator_for(seed, "rt")).train
            task = replace(task, train=task.train.subset(rows))
        elif kind in NOISE:
            name = "uniform" if kind == "uniform" else "flip2" if task.num_classes > 2 else "flip1"
            generator = generator_for(seed, "rn", name)
            given = noisy_labels(task.train.targets, name, task.num_classes, float(amount) / 100, generator)
            task = replace(task, train=replace(task.train, targets=given, clean_targets=task.train.targets))
    return replace(task, name=f"{base}_{plant}".replace("+", "_and_"))


def measure(base: str, plant: str, method: str, seed: int) -> Row:
    """The chances that robust gave, and the figures of a training on a test set without the bias."""
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(method=method, seed=seed, data_seed=seed, out=f"{folder}/run", **BASES[base][1])
        result = train(config, task=make_task(base, plant, seed))
    assert result.history, "it was trained just now"
    last = result.history[-1]
    chances = {kind: float(last[name]) if method == "robust" else None for kind, name in CHANCES.items()}
    worst = result.metric("worst_group_accuracy") if "shortcut" in planted(plant) else None
    return {"accuracy": result.metric("accuracy") or 0.0, "worst_group": worst, **chances}


def robust_verdicts_table(rows: Sequence[Row]) -> str:
    """By task: right verdicts, and accuracy (and worst group) beside cross entropy's."""
    body = []
    for (base, plant), mine in grouped(rows, columns("base", "plant")).items():
        judged = [row for row in mine if row["method"] == "robust"]
        right, unsure = (sum(map(judge, judged)) for judge in (is_right, is_unsure))
        plain = [row for row in mine if row["method"] != "robust"]
        body.append([base, _words(plant), f"{right} of {len(judged)}", str(unsure), _figure(judged), _figure(plain)])
    return markdown(["set", "planted", "right verdict", "cannot tell", "robust", "CE"], body)


def _words(plant: str) -> str:
    """>>> _words("tail_10+colour_5"), _words("flip_40")
    ('tail 10:1 and colour, 5 % against', '40 % flips')
    """
    words = []
    for part in plant.split("+"):
        kind, _, amount = part.partition("_")
        mark = f"{kind}, {amount} % against" if kind in MARKS else f"{amount} % {WORDS.get(kind)}"
        words.append(f"tail {amount}:1" if kind == "tail" else mark if amount else kind)
    return " and ".join(words)


def _figure(rows: Sequence[Row]) -> str:
    means = [100 * mean(values) for name in ("accuracy", "worst_group") if (values := numbers(rows, name))]
    return " / ".join(f"{figure:.1f}" for figure in means)


def run(options: RobustArguments) -> None:
    cells = [
        (base, plant, method, seed)
        for seed in options.seeds
        for base in options.bases
        for plant in BASES[base][0]
        for method in ("robust", "cross_entropy")
    ]
    print(robust_verdicts_table(fill(options.out, ("base", "plant", "method", "seed"), cells, measure)))
