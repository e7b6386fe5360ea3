"""The few rows of blocks that verdicts rest on, and what is known of all others: class sizes and scaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from icda.auditing.assessment import Assessment
from icda.auditing.evidence import SAMPLES, gather_evidence, make_sketch
from icda.auditing.inputs import check_class_counts
from icda.auditing.treatment import choose_treatment
from icda.auditing.verdicts import decide
from icda.engines import Engine
from icda.errors import InputError
from icda.linear.block_fit import Say
from icda.linear.blocks import Block, Scaling, count_labels, merge_counts, merge_summaries, rows_in, summarise
from icda.linear.dealing import Place, deal_folds, draw_rows, place_blocks
from icda.linear.descent import SAMPLED
from icda.linear.threads import threads_for


@dataclass(frozen=True)
class BlockOutline:
    """Blocks with their places, the classes and their sizes, the scaling, and a few rows that steer fits."""

    places: list[Place]
    classes: np.ndarray
    counts: np.ndarray
    scaling: Scaling
    steering: Tensor

    @property
    def width(self) -> int:
        return len(self.scaling.mean)


@dataclass(frozen=True)
class BlockSample:
    """Some rows of all blocks: features scaled by the moments of all rows, numbers of their classes, and folds."""

    features: Tensor
    targets: Tensor
    folds: Tensor


def outline_blocks(blocks: Sequence[Block], engine: Engine, say: Say) -> BlockOutline:
    """Two passes: one over the labels, one over all."""
    if not blocks:
        raise InputError("there are no rows.")
    say(f"Counting the labels of {rows_in(blocks)} rows in {len(blocks)} blocks ...")
    parts = list(engine.each(count_labels, blocks))
    classes, counts = merge_counts(parts)
    check_class_counts(classes, counts)
    say(f"Gathering the statistics of {len(classes)} classes ...")
    width = blocks[0].read()[0].shape[1]
    every = max(1, int(counts.sum()) // (SAMPLED * width))
    summary = merge_summaries(engine.each(summarise, blocks, classes, False, every))
    places = list(place_blocks(blocks, parts, classes))
    return BlockOutline(places, classes, counts, Scaling.of(summary.statistics), summary.rows)


def draw_sample(outline: BlockOutline, engine: Engine, folds: int, seed: int) -> BlockSample:
    """The rows that verdicts rest on, the same however rows are cut into blocks."""
    chosen = draw_rows(int(outline.counts.sum()), SAMPLES, seed)
    tasks = []
    for place in outline.places:
        first, last = np.searchsorted(chosen, [place.start, place.start + len(place)])
        if last > first:
            tasks.append((place, chosen[first:last] - place.start))
    features, codes, dealt = zip(*engine.each(take_rows, tasks, outline.classes, folds, seed), strict=True)
    scaled = (torch.from_numpy(np.concatenate(features)) - outline.scaling.mean) / outline.scaling.scale
    return BlockSample(scaled.float(), torch.from_numpy(np.concatenate(codes)), torch.from_numpy(np.concatenate(dealt)))


def take_rows(
    task: tuple[Place, np.ndarray], classes: np.ndarray, folds: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features in float64, classes and folds of some rows of a block."""
    place, rows = task
    features, labels = place.block.read()
    codes = np.searchsorted(classes, labels)
    return features[rows].astype(np.float64), codes[rows], deal_folds(codes, place.before, folds, seed)[rows]


def assess_sample(sample: BlockSample, counts: np.ndarray, seed: int) -> tuple[Assessment, BlockSample]:
    """Verdicts and treatment by a sample of the rows, class sizes by all; and the rows that were asked.

    A class with one row in the sample is left out: a head that has not seen that row would not know the class.
    """
    kept = torch.bincount(sample.targets, minlength=len(counts)) >= 2
    rows = kept[sample.targets]
    if int(kept.sum()) < 2:
        raise InputError(
            f"a sample of {len(rows)} rows holds fewer than 2 classes twice: there are too many classes for verdicts."
        )
    sample = BlockSample(sample.features[rows], sample.targets[rows], sample.folds[rows])
    sketch = make_sketch(sample.features, seed)
    with threads_for(sketch.features.numel() * len(counts)):
        evidence = gather_evidence(sketch, sample.targets, len(counts), seed)
        evidence = replace(evidence, samples=int(counts.sum()), class_counts=[int(count) for count in counts])
        verdicts = decide(evidence)
        numbers = kept.cumsum(0) - 1  # logit adjustment knows no class without samples
        treatment = choose_treatment(sketch, numbers[sample.targets], int(kept.sum()), verdicts, seed)
    return Assessment(evidence, verdicts, treatment), sample
