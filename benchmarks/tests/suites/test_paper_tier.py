"""Every configuration of tier `paper` starts and takes two steps.

On a CPU the whole tier cannot be started cell by cell. So cells count as one when network, method and options agree: a
column only brings another dataset, for which made-up images of the same shape stand in. All methods are started on
ResNet-32 and ResNet-110; WRN-28-10, a hundred times dearer, is started with one method of each kind (a loss, a loss with
statistics, two networks, a look-ahead on metadata). Settings are the suite's to the letter but for the batch, which is cut.

Models of torchvision and of the Hugging Face hub cannot be had here: a small network of the same make, with as many groups
in its made-up data as the task has, stands in for them, so that every method of the tables that use them is started too.
"""

from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
import transformers
from torch import nn

from icda.data.sources import ImageArray, TextArray
from icda.data.task import Batch, Source, Split, Task
from icda.models import from_huggingface, from_torch
from icda.training import TrainConfig, Trainer
from icda.training.run import build, make_accelerator, visible_task
from icda.training.stage_run import StageRun
from icda_bench.suites.suite import SUITES, cells, load_suite

BATCHES = {"resnet32": 16, "resnet110": 12, "wrn_28_10": 2, "linear": 16}
FOREIGN = {"torchvision:resnet50@IMAGENET1K_V1", "torchvision:resnext50_32x4d", "hf:distilbert-base-uncased", "minilm"}
KINDS = ("cross_entropy", "icda", "co_teaching", "meta_icda")
STRENGTHS = ("noise_rate", "alpha", "a", "b", "lambda0", "beta")  # numbers that make no other code run
STEPS = 2


class EnoughError(Exception):
    """Two steps were taken."""


class BriefTrainer(Trainer):
    def _step(self, run: StageRun, batch: Batch) -> None:
        super()._step(run, batch)
        if self.position.iteration == STEPS:
            raise EnoughError


def made_up(name, num_classes):
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


def made_up_groups(text):
    """Two classes by two attributes: images or short texts, with validation, metadata and group labels."""
    generator = torch.Generator().manual_seed(0)
    if text:
        texts = [" ".join(["word"] * int(size)) for size in torch.randint(1, 5, (160,), generator=generator)]
        source: Source = TextArray(texts, lambda batch: [[5] * len(text.split()) for text in batch], 8)
    else:
        images = torch.randint(0, 256, (160, 32, 32, 3), generator=generator, dtype=torch.uint8)
        source = ImageArray(images, (0.5,) * 3, (0.25,) * 3)
    groups = torch.arange(160) % 4

    def split(start: int) -> Split:
        part = slice(start, start + 40)
        return Split(source, torch.arange(160)[part], groups[part] // 2, groups[part])

    known = {"group_names": tuple("abcd"), "group_attributes": (0, 1, 0, 1), "default_model": "resnet8"}
    inputs = (
        {"input_kind": "text", "input_shape": (8,)} if text else {"input_kind": "image", "input_shape": (3, 32, 32)}
    )
    return Task("made_up", 2, *(split(start) for start in (0, 40, 80, 120)), **known, **inputs)


def stand_in(text):
    """A network as torchvision or Hugging Face make them, split as theirs are."""
    if text:
        sizes = {"vocab_size": 50, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "num_labels": 2}
        config = transformers.DistilBertConfig(**sizes)
        return from_huggingface(transformers.AutoModelForSequenceClassification.from_config(config)).train()
    body = [nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU()]
    parts = OrderedDict(body=nn.Sequential(*body), pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), fc=nn.Linear(8, 2))
    return from_torch(nn.Sequential(parts), 2).train()


def distinct_configs():
    found: dict[str, TrainConfig] = {}
    for name in SUITES:
        for cell in cells(load_suite(name), "paper", "unused", seeds=1):
            config = cell.config
            options = {name: value for name, value in config.options.items() if name not in STRENGTHS}
            key = f"{config.model} {config.method} {options}{'' if config.attributes == 'known' else ' told no groups'}"
            if config.model != "wrn_28_10" or config.method in KINDS:
                found.setdefault(key, config)
    return found


CONFIGS = distinct_configs()


@pytest.mark.parametrize("key", CONFIGS)
def test_it_starts_and_takes_two_steps(key, tmp_path, monkeypatch):
    config = CONFIGS[key]
    if config.model in FOREIGN:
        text = config.model in ("hf:distilbert-base-uncased", "minilm")
        task = visible_task(config, made_up_groups(text))
        monkeypatch.setattr("icda.training.run.create_model", lambda *_: stand_in(text))
        brief = replace(config, batch_size=16, out=str(tmp_path))
    else:
        task = made_up(config.task, 100 if config.task.startswith("cifar100") else 10)
        if config.model == "linear":
            task = replace(task, input_shape=(3 * 32 * 32,))
        brief = replace(config, batch_size=BATCHES[config.model or ""], out=str(tmp_path))
    networks, method = build(brief, task)
    trainer = BriefTrainer(brief, task, networks, method, tmp_path, make_accelerator("no"))
    with pytest.raises(EnoughError):
        trainer.run()
    assert trainer.position.iteration == STEPS
    assert all(torch.isfinite(value).all() for model in trainer.models for value in model.parameters())


def test_all_methods_and_networks_of_the_tier_are_started():
    every = {cell.config.method for name in SUITES for cell in cells(load_suite(name), "paper", "unused", seeds=1)}
    assert {config.method for config in CONFIGS.values()} == every
    assert {config.model for config in CONFIGS.values()} == set(BATCHES) | FOREIGN
