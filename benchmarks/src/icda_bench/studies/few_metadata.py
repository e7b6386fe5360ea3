"""How far metadata may be few or wrong before a method that learns from them is led astray."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from icda.data import Split, Task
from icda.data.generators import generator_for
from icda.training import TrainConfig, train
from icda.training.run import load_task
from icda_bench.markdown import grouped, markdown, percent
from icda_bench.rows import fill

TASK = "digits_flip_noise"
METHODS = {"meta_icda_signed": "Meta-ICDA, signed", "meta_weight_net": "Meta-Weight-Net"}
CASES = ((10, 0.0), (5, 0.0), (2, 0.0), (10, 0.1))  # samples per class, share of wrong labels


@dataclass(frozen=True)
class FewMetadataRow:
    """Test accuracy of one training with `per_class` metadata of each class, a share `wrong` of them mislabelled."""

    per_class: int
    wrong: float
    method: str
    seed: int
    accuracy: float


@dataclass(frozen=True)
class Arguments:
    """Train with few metadata, or wrong ones; trainings that the file holds are not run again."""

    out: Path
    """CSV file; rows are added as they come."""
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


def measure(per_class: int, wrong: float, method: str, seed: int, epochs: int) -> FewMetadataRow:
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(task=TASK, method=method, seed=seed, epochs=epochs, out=folder)
        result = train(config, task=fewer(load_task(config), per_class, wrong, seed))
    assert result.metrics is not None, "a finished run has them"
    return FewMetadataRow(per_class, wrong, method, seed, float(result.metrics["accuracy"]))


def few_metadata_table(rows: Sequence[FewMetadataRow]) -> str:
    """Test accuracy by the number of metadata and the share of wrong ones among them."""
    body = []
    for (per_class, wrong), mine in grouped(rows, lambda row: (row.per_class, row.wrong)).items():
        by_method = grouped(mine, lambda row: row.method)
        cells = (percent(by_method.get(method, []), "accuracy") for method in METHODS)
        body.append([str(per_class), f"{wrong:.0%}", *cells])
    return markdown(["metadata per class", "of them wrong", *METHODS.values()], body)


def run(options: Arguments) -> None:
    cells = [(*case, method, seed) for seed in options.seeds for case in CASES for method in METHODS]
    print(few_metadata_table(fill(options.out, FewMetadataRow, cells, partial(measure, epochs=options.epochs))))
