"""Planted shortcuts: a mark that tells the class in training and nothing at test time, in any task of images or texts.

What a mark looks like is known to the sample and to nobody else: groups are class x mark, for methods that are given
them and for the evaluation. A mark is planted on what a source serves, after augmentation, so that no crop removes it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.data.sources import TextArray, transformed
from icda.data.task import Source, Split, Task
from icda.errors import InputError

Kind = Literal["patch", "frame", "colour", "texture", "token"]
KINDS: tuple[Kind, ...] = get_args(Kind)
BRIGHT = 2.0  # of a mark, in standard deviations of the images' pixels
TINT, BLEND = 0.3, 0.4  # how much of an image a colour and a texture take
WAVELENGTH = 4  # of a texture's stripes, in pixels
OWN = ("its own mark", "another mark")


def planted_attributes(targets: Tensor, num_classes: int, rate: float, generator: torch.Generator) -> Tensor:
    """The mark (N,) of each sample: its class with probability `rate`, else any other class."""
    if not 0 <= rate <= 1:
        raise InputError(f"rate is the share of samples whose mark tells their class, in [0, 1], got {rate}.")
    others = (targets + torch.randint(1, num_classes, targets.shape, generator=generator)) % num_classes
    return torch.where(torch.rand(len(targets), generator=generator) < rate, targets, others)


def plant_shortcut(task: Task, kind: Kind, rate: float, seed: int = 0, name: str | None = None) -> Task:
    """The task with a mark of `kind` in every sample: in training it tells the class at `rate`, elsewhere nothing.

    There are as many marks as classes. Groups are class x mark, in place of the task's own. With more than two classes
    most are too small to be judged alone, so the worst group is taken over two for each class: marks that tell it, and
    others.

    >>> from icda.data import create_task
    >>> task = plant_shortcut(create_task("digits"), "frame", 0.95)
    >>> task.num_groups, len(task.membership_names)
    (100, 20)
    """
    if kind not in KINDS:
        raise InputError(f"a shortcut is one of {', '.join(KINDS)}, got {kind!r}.")
    input_kind = "text" if kind == "token" else "image"
    if task.input_kind != input_kind:
        raise InputError(
            f"the shortcut {kind!r} is planted in tasks of {input_kind}s, and {task.name!r} has {task.input_kind}."
        )
    classes = task.num_classes
    rates = {split: rate if split == "train" else 1 / classes for split in task.splits()}
    planted = {
        split: _planted_split(part, classes, kind, rates[split], generator_for(seed, "shortcut", kind, split))
        for split, part in task.splits().items()
    }
    return replace(
        task,
        name=name or f"{task.name}_{kind}",
        **planted,  # type: ignore[arg-type]
        group_names=tuple(f"{label}, mark of {mark}" for label in task.class_names for mark in task.class_names),
        group_attributes=tuple(range(classes)) * classes,
        membership_names=tuple(f"{label}, {mark}" for label in task.class_names for mark in OWN)
        if classes > 2
        else None,
        description=f"{task.description} A planted {kind} tells the class of {rate:.0%} of train, and nothing elsewhere.",
    )


def _planted_split(split: Split, classes: int, kind: Kind, rate: float, generator: torch.Generator) -> Split:
    marks = planted_attributes(split.targets, classes, rate, generator)
    if isinstance(texts := split.source, TextArray):  # each behind a word that stands for its mark
        pairs = zip(split.rows.tolist(), marks.tolist(), strict=True)
        source: Source = texts.with_texts([f"mark{mark} {texts.texts[row]}" for row, mark in pairs])
    else:
        source = PlantedImages(split.source, split.rows, marks, kind, classes)
    agrees = marks == split.targets
    memberships = F.one_hot(2 * split.targets + (~agrees).long(), 2 * classes).bool() if classes > 2 else None
    groups = split.targets * classes + marks
    return replace(split, source=source, rows=torch.arange(len(split)), groups=groups, memberships=memberships)


class PlantedImages:
    """The images of another source with a mark in each: row i is its row `rows[i]` with mark `marks[i]`."""

    def __init__(self, source: Source, rows: Tensor, marks: Tensor, kind: Kind, num_marks: int) -> None:
        self.source, self.rows, self.marks, self.kind, self.num_marks = source, rows, marks, kind, num_marks

    def __len__(self) -> int:
        return len(self.rows)

    def fetch(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        images: Tensor = self.source.fetch(self.rows[rows], generator)
        return plant(images, self.marks[rows], self.kind, self.num_marks)

    def with_transform(self, transform: Callable[[Tensor, torch.Generator], Tensor]) -> PlantedImages:
        """The same marks on images that `transform` changes first."""
        return PlantedImages(transformed(self.source, transform), self.rows, self.marks, self.kind, self.num_marks)

    @cached_property
    def fingerprint(self) -> str:
        inner = getattr(self.source, "fingerprint", "")
        digest = hashlib.sha256(f"{inner} {self.kind} {self.num_marks}".encode())
        for values in (self.rows, self.marks):
            digest.update(values.to(torch.int64).contiguous().numpy().tobytes())
        return digest.hexdigest()


def plant(images: Tensor, marks: Tensor, kind: Kind, num_marks: int) -> Tensor:
    """Standardised images (N, C, H, W) with their marks (N,); the images given are not changed."""
    colours = mark_colours(num_marks, images.shape[1]).to(images)[marks][:, :, None, None]  # (N, C, 1, 1)
    height, width = images.shape[2:]
    marked = images.clone()
    if kind == "patch":
        side = max(2, min(height, width) // 5)
        marked[:, :, :side, :side] = colours
    elif kind == "frame":
        edge = max(1, min(height, width) // 16)
        inside = torch.zeros(height, width, dtype=torch.bool, device=images.device)
        inside[edge : height - edge, edge : width - edge] = True
        marked = torch.where(inside, images, colours)
    elif kind == "colour":
        marked = (1 - TINT) * images + TINT * colours
    else:
        assert kind == "texture", "a token is planted in texts"
        marked = (1 - BLEND) * images + BLEND * stripes(num_marks, height, width).to(images)[marks][:, None]
    return marked.contiguous(memory_format=torch.channels_last) if images.shape[1] == 3 else marked


def mark_colours(num_marks: int, channels: int) -> Tensor:
    """A colour (num_marks, channels) for each mark, in standard deviations: hues around a circle, or shades of grey."""
    place = torch.arange(num_marks, dtype=torch.float)
    if channels == 1:
        return (BRIGHT * (2 * place / max(num_marks - 1, 1) - 1))[:, None]
    phase = torch.arange(channels, dtype=torch.float) / channels
    return BRIGHT * torch.cos(2 * math.pi * (place[:, None] / num_marks - phase[None]))


def stripes(num_marks: int, height: int, width: int) -> Tensor:
    """Stripes (num_marks, height, width) whose direction tells the mark."""
    angle = math.pi * torch.arange(num_marks, dtype=torch.float) / num_marks
    down, across = torch.meshgrid(torch.arange(float(height)), torch.arange(float(width)), indexing="ij")
    along = torch.cos(angle)[:, None, None] * across + torch.sin(angle)[:, None, None] * down
    return BRIGHT * torch.sign(torch.sin(2 * math.pi * along / WAVELENGTH + 0.5))
