"""Every configuration of tier `paper` starts and takes two steps.

On a CPU the whole tier cannot be started cell by cell. So cells count as one when network, method and options agree: a
column only brings another dataset, for which made-up images of the same shape stand in. All methods are started on
ResNet-32 and ResNet-110; WRN-28-10, a hundred times dearer, is started with one method of each kind (a loss, a loss with
statistics, two networks, a look-ahead on metadata). Settings are the suite's to the letter but for the batch, which is cut.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from icda.bench.suite import SUITES, cells, load_suite
from icda.data.sources import ImageArray
from icda.data.task import Batch, Split, Task
from icda.training import TrainConfig, Trainer
from icda.training.run import build, make_accelerator

BATCHES = {"resnet32": 16, "resnet110": 12, "wrn_28_10": 2}
KINDS = ("cross_entropy", "icda", "co_teaching", "meta_icda")
STRENGTHS = ("noise_rate", "alpha", "a", "b", "lambda0", "beta")  # numbers that make no other code run
STEPS = 2


class EnoughError(Exception):
    """Two steps were taken."""


class BriefTrainer(Trainer):
    def _step(self, batch: Batch) -> None:
        super()._step(batch)
        if self.position.iteration == STEPS:
            raise EnoughError


def made_up(name: str, num_classes: int) -> Task:
    """Thirty-two-pixel noise in the place of CIFAR; enough of each class for whatever a method counts."""
    generator = torch.Generator().manual_seed(0)
    count = max(num_classes, 40)
    images = torch.randint(0, 256, (4 * count, 32, 32, 3), generator=generator, dtype=torch.uint8)
    source = ImageArray(images, (0.5,) * 3, (0.25,) * 3, crop_padding=4, flip=True)
    labels = torch.arange(4 * count) % num_classes

    def split(start: int, stop: int) -> Split:
        return Split(source, torch.arange(start, stop), labels[start:stop])

    train, test, metadata = split(0, 2 * count), split(2 * count, 3 * count), split(3 * count, 4 * count)
    return Task(name, num_classes, train, None, test, metadata, input_shape=(3, 32, 32), default_model="resnet32")


def distinct_configs() -> dict[str, TrainConfig]:
    found: dict[str, TrainConfig] = {}
    for name in SUITES:
        for cell in cells(load_suite(name), "paper", "unused", seeds=1):
            config = cell.config
            options = {name: value for name, value in config.options.items() if name not in STRENGTHS}
            key = f"{config.model} {config.method} {options}"
            if config.model != "wrn_28_10" or config.method in KINDS:
                found.setdefault(key, config)
    return found


CONFIGS = distinct_configs()


@pytest.mark.parametrize("key", CONFIGS)
def test_it_starts_and_takes_two_steps(key: str, tmp_path: Path) -> None:
    config = CONFIGS[key]
    task = made_up(config.task, 100 if config.task.startswith("cifar100") else 10)
    brief = replace(config, batch_size=BATCHES[config.model or ""], out=str(tmp_path))
    networks, method = build(brief, task)
    trainer = BriefTrainer(brief, task, networks, method, tmp_path, make_accelerator("no"))
    with pytest.raises(EnoughError):
        trainer.run()
    assert trainer.position.iteration == STEPS
    assert all(torch.isfinite(value).all() for model in trainer.models for value in model.parameters())


def test_all_methods_and_networks_of_the_tier_are_started() -> None:
    every = {cell.config.method for name in SUITES for cell in cells(load_suite(name), "paper", "unused", seeds=1)}
    assert {config.method for config in CONFIGS.values()} == every
    assert {config.model for config in CONFIGS.values()} == set(BATCHES)
