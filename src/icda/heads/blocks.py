"""Rows in blocks, wherever those lie and wherever they are worked on: read, scaled and dealt into folds a few at a time.

What a row is, and the fold it is in, follow from its place and its label alone. Rows in memory are one block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from icda.data.missing import encode_known
from icda.data.own.blocks import Block as FileBlock
from icda.engines import Engine, Here
from icda.errors import InputError
from icda.heads.dealing import Place, deal_folds, place_blocks
from icda.heads.problem import SAMPLED
from icda.heads.rows import Rows, feature_moments, rows_per_chunk
from icda.statistics import ClassStatistics

if TYPE_CHECKING:
    from icda.heads.solver import LinearHead

KNOWN = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))  # to torch
NOTHING = torch.empty(0)
Say = Callable[[str], None]


@dataclass(frozen=True)
class MemoryBlock:
    """Rows that are here already."""

    features: np.ndarray
    targets: np.ndarray
    given: np.ndarray | None = None  # groups
    chunks: dict[Any, list[RowChunk]] = field(default_factory=dict, compare=False)  # of scaled rows, which cost nothing

    def __len__(self) -> int:
        return len(self.targets)

    def __str__(self) -> str:
        return "the samples"

    def labels(self) -> np.ndarray:
        return self.targets

    def groups(self) -> np.ndarray:
        assert self.given is not None
        return self.given

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        return self.features, self.targets


Block = MemoryBlock | FileBlock


@dataclass(frozen=True)
class Scaling:
    """What is taken off each feature and what it is divided by."""

    mean: Tensor
    scale: Tensor

    @classmethod
    def of(cls, statistics: ClassStatistics) -> Scaling:
        """Mean and standard deviation of all samples, from those of the classes; a constant feature is divided by 1."""
        share = (statistics.count / statistics.count.sum())[:, None]
        mean = (share * statistics.mean).sum(0)
        within = statistics.covariance
        variances = within.diagonal(dim1=1, dim2=2) if within.ndim == 3 else within
        deviation = (share * (variances + (statistics.mean - mean).square())).sum(0).sqrt()
        least = float(statistics.count.sum()) * torch.finfo(torch.float64).eps * mean.abs()
        return cls(mean, torch.where(deviation <= least, 1.0, deviation))

    @classmethod
    def of_rows(cls, X: np.ndarray, weights: np.ndarray | None = None) -> Scaling:
        """The same of rows in memory (N, A), which may count `weights` (N,), in their precision.

        >>> Scaling.of_rows(np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([1.0, 3.0]))
        Scaling(mean=tensor([2.5000, 5.0000], dtype=torch.float64), scale=tensor([0.8660, 1.0000], dtype=torch.float64))
        """
        mean, deviation = feature_moments(X, np.ones(len(X), X.dtype) if weights is None else weights)
        scale = np.where(deviation > 0, deviation, 1.0)
        return cls(torch.from_numpy(mean.astype(X.dtype)), torch.from_numpy(scale.astype(X.dtype)))

    def apply(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) / self.scale


class RowChunk(NamedTuple):
    """Scaled features (n, A), classes (n,) and numbers (n,) of some rows, and the fold that each is in."""

    features: Tensor
    targets: Tensor
    rows: Tensor
    folds: Tensor
    groups: Tensor | None = None  # numbers of the groups that were given, if any; -1 where a row's is not known


@dataclass(frozen=True)
class Reading:
    """All that says how a block's rows are read: classes, scaling, precision, and how folds are dealt."""

    classes: np.ndarray
    scaling: Scaling | None  # from features as they come to those that heads are fitted to; None: nobody knows
    dtype: torch.dtype
    folds: int = 5
    seed: int = 0
    groups: np.ndarray | None = None  # those that blocks say of their rows, sorted
    is_ready: bool = False  # whether blocks hold scaled features and numbers of classes, in memory

    def scaled(self, rows: Tensor) -> Tensor:
        if self.is_ready:
            return rows
        assert self.scaling is not None
        return self.scaling.apply(rows)

    def codes(self, labels: np.ndarray) -> np.ndarray:
        return labels if self.is_ready else np.searchsorted(self.classes, labels)

    def group_codes(self, place: Place) -> Tensor | None:
        """Numbers of the groups of a block's rows, -1 where one is not known; None without groups."""
        if self.groups is None:
            return None
        codes, own = encode_known(place.block.groups())
        return torch.from_numpy(np.append(np.searchsorted(self.groups, own), -1)[codes])

    def chunks(self, place: Place) -> Iterator[RowChunk]:
        """A block's rows, a few at a time; of scaled rows in memory they are views, made once."""
        if not self.is_ready or isinstance(place.block.features, np.memmap):
            return self._chunks(place)
        made = place.block.chunks
        key = self.folds, self.seed
        if key not in made:
            made[key] = list(self._chunks(place))
        return iter(made[key])

    def _chunks(self, place: Place) -> Iterator[RowChunk]:
        features, labels = place.block.read()
        codes, groups = self.codes(labels), self.group_codes(place)
        before, start = place.before, place.start
        for span, part in numbers(features, self.dtype, copy=not (self.is_ready and features.flags.writeable)):
            targets = codes[span]
            folds = torch.from_numpy(deal_folds(targets, before, self.folds, self.seed))
            rows = torch.arange(start + span.start, start + span.start + len(targets))
            if not self.is_ready and self.scaling is not None:
                part.sub_(self.scaling.mean.to(part)).div_(self.scaling.scale.to(part))
            own = None if groups is None else groups[span]
            yield RowChunk(part, torch.from_numpy(targets), rows, folds, own)
            before = before + np.bincount(targets, minlength=len(before))


def take_rows(place: Place, reading: Reading, chosen: np.ndarray) -> RowChunk:
    """Those of a block's rows that were drawn, scaled, in float32."""
    first, last = np.searchsorted(chosen, [place.start, place.start + len(place)])
    rows = chosen[first:last] - place.start
    features, labels = place.block.read()
    codes, scaled = reading.codes(labels), reading.scaled(torch.from_numpy(np.array(features[rows], dtype=np.float64)))
    folds = deal_folds(codes, place.before, reading.folds, reading.seed, rows)
    numbered, groups = torch.from_numpy(chosen[first:last]), reading.group_codes(place)
    groups = None if groups is None else groups[rows]
    return RowChunk(scaled.float(), torch.from_numpy(codes[rows]), numbered, torch.from_numpy(folds), groups)


def numbers(features: np.ndarray, dtype: torch.dtype, copy: bool = True) -> Iterator[tuple[slice, Tensor]]:
    """Rows of an array as tensors, of their own if `copy`, a few at a time."""
    step = rows_per_chunk(features.shape[1], dtype)
    for start in range(0, len(features), step):
        copied = np.array(features[start : start + step]) if copy else features[start : start + step]
        # torch widens half precision much faster than NumPy; other numbers, or bytes in another order, it may not know.
        part = torch.from_numpy(copied if copied.dtype in KNOWN else copied.astype(np.float64))
        yield slice(start, start + len(copied)), part.to(dtype)


@dataclass
class BlockRows:
    """Blocks with their places, the classes and their sizes, the scaling, and a few rows that steer fits."""

    places: list[Place]
    reading: Reading
    counts: np.ndarray
    statistics: ClassStatistics | None  # of the classes; None where nobody asks for them
    sampled: Tensor
    weights: Tensor | None = None  # (N,) of rows in memory, one on average; None: every row counts the same
    unit: float = 1.0  # what a row of weight one has in `weights`
    engine: Engine = field(default_factory=Here)
    say: Say = lambda _: None
    passes: int = 2  # over all rows, those for labels and statistics included

    @classmethod
    def gather(
        cls,
        blocks: Sequence[Block],
        engine: Engine | None = None,
        *,
        full: bool = False,
        dtype: torch.dtype = torch.float32,
        folds: int = 5,
        seed: int = 0,
        say: Say | None = None,
        check: Callable[[np.ndarray, np.ndarray], None] | None = None,
        groups: bool = False,
    ) -> BlockRows:
        """Two passes: one over the labels, one over all; with covariances of the classes if `full`.

        `check` may refuse classes and their counts after the first; with `groups` blocks say those of their rows.
        """
        engine, say = engine or Here(), say or (lambda _: None)
        if not blocks:
            raise InputError("there are no rows.")
        say(f"Counting the labels of {sum(map(len, blocks))} rows in {len(blocks)} blocks ...")
        parts = list(engine.each(count_labels, blocks))
        classes, counts = merge_counts(parts)
        if len(classes) < 2:
            raise InputError(f"a classifier needs at least 2 classes, got one: {str(classes[0])!r}.")
        if check is not None:
            check(classes, counts)
        say(f"Gathering the statistics of {len(classes)} classes ...")
        every = max(1, int(counts.sum()) // (SAMPLED * blocks[0].read()[0].shape[1]))
        statistics, sampled = reduce(merge_summaries, engine.each(summarise, blocks, classes, full, every))
        known = np.unique(np.concatenate(list(engine.each(distinct_groups, blocks)))) if groups else None
        reading = Reading(classes, Scaling.of(statistics), dtype, folds, seed, known)
        places = list(place_blocks(blocks, parts, classes))
        return cls(places, reading, counts, statistics, sampled, engine=engine, say=say)

    @classmethod
    def of_memory(cls, features: Rows, targets: Tensor, num_classes: int, folds: int = 5, seed: int = 0) -> BlockRows:
        """Scaled features (N, A) and classes (N,) as one block."""
        block = MemoryBlock(features.numpy(), targets.numpy())
        counts = np.bincount(block.targets, minlength=num_classes)
        every = max(1, len(targets) // (SAMPLED * features.shape[1]))
        reading = Reading(np.arange(num_classes), None, features.dtype, folds, seed, is_ready=True)
        place = Place(block, 0, np.zeros(num_classes, dtype=np.int64))
        sampled = torch.from_numpy(np.array(block.features[::every], np.float64))
        return cls([place], reading, counts, None, sampled)

    @classmethod
    def of_arrays(cls, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None, seed: int = 0) -> BlockRows:
        """Features as they come (N, A), labels (N,) and, if any, weights (N,), as one block that is scaled at once."""
        X = np.ascontiguousarray(X if X.dtype in (np.float32, np.float64) else X.astype(np.float64))
        scaling, (names, codes) = Scaling.of_rows(X, weights), np.unique(y, return_inverse=True)
        rows = cls.of_memory(scaling.apply(torch.from_numpy(X)), torch.from_numpy(codes), len(names), seed=seed)
        rows = replace(rows, reading=replace(rows.reading, classes=names, scaling=scaling))
        if weights is None:
            return rows
        mass = torch.from_numpy(weights / weights.mean()).to(rows.dtype)
        return replace(rows, weights=mass, unit=1 / float(weights.mean()))

    def with_groups(self, groups: np.ndarray) -> BlockRows:
        """The same rows, in memory, with groups (N,), None or NaN where one is not known."""
        place, reading = self.places[0], replace(self.reading, groups=encode_known(groups)[1])
        return replace(
            self, places=[replace(place, block=replace(place.block, given=groups, chunks={}))], reading=reading
        )

    def unscaled(self, head: LinearHead) -> LinearHead:
        """The head for features as they come."""
        assert self.reading.scaling is not None
        return head.unscaled(self.reading.scaling.mean, self.reading.scaling.scale)

    @property
    def in_memory(self) -> bool:
        """Whether the scaled features are here, in one block."""
        return self.reading.is_ready

    @property
    def everything(self) -> RowChunk:
        """All rows, which are in memory, at once."""
        assert self.in_memory
        features, targets = map(torch.from_numpy, self.places[0].block.read())
        return RowChunk(features, targets, torch.arange(len(targets)), NOTHING)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.counts.sum()), self.sampled.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.reading.dtype

    @property
    def num_classes(self) -> int:
        return len(self.counts)

    def each(self, work: Callable[..., Any], *shared: Any) -> Iterator[Any]:
        """work(place, reading, *shared) of all blocks, in their order: one pass."""
        self.passes += 1
        self.say(f"Pass {self.passes} over the rows ...")
        return self.engine.each(work, self.places, self.reading, *shared)

    def total(self, work: Callable[..., Any], *shared: Any) -> Any:
        """The sum of work(chunk, *shared) over all rows."""
        return reduce(add, self.each(sum_chunks, work, *shared))

    def gathered(self, work: Callable[..., Tensor], *shared: Any) -> Tensor:
        """work(chunk, *shared) of all rows, one entry each."""
        return torch.cat([part for block in self.each(list_chunks, work, *shared) for part in block])

    def taken(self, chosen: np.ndarray) -> RowChunk:
        """Some rows by their numbers, ascending, scaled, in float32."""
        parts = [part for part in self.each(take_rows, chosen) if len(part.targets)]
        columns = zip(*parts, strict=True)
        return RowChunk(*(None if column[0] is None else torch.cat(column) for column in columns))  # type: ignore[arg-type]


def sum_chunks(place: Place, reading: Reading, work: Callable[..., Any], *shared: Any) -> Any:
    return reduce(add, (work(chunk, *shared) for chunk in reading.chunks(place)))


def list_chunks(place: Place, reading: Reading, work: Callable[..., Any], *shared: Any) -> list[Any]:
    return [work(chunk, *shared) for chunk in reading.chunks(place)]


def count_labels(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """The distinct labels of a block and how often each is there."""
    labels = block.labels()
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise InputError(f"the labels of {block} hold NaN: fill them or drop those rows.")
    return np.unique(labels, return_counts=True)


def distinct_groups(block: Any) -> np.ndarray:
    return encode_known(block.groups())[1]


def merge_counts(parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Labels and counts of all blocks.

    >>> merge_counts([(np.array(["a"]), np.array([2])), (np.array(["a", "b"]), np.array([1, 5]))])
    (array(['a', 'b'], dtype='<U1'), array([3, 5]))
    """
    labels, counts = (np.concatenate(part) for part in zip(*parts, strict=True))
    classes, codes = np.unique(labels, return_inverse=True)
    return classes, np.bincount(codes, counts).astype(np.int64)


def summarise(block: Block, classes: np.ndarray, full: bool, every: int) -> tuple[ClassStatistics, Tensor]:
    """Class statistics of a block, with covariances if `full`, and each `every`-th row."""
    features, labels = block.read()
    statistics = ClassStatistics(len(classes), features.shape[1], "full" if full else "diagonal").double()
    rows = torch.from_numpy(np.array(features[::every], dtype=np.float64))
    targets = torch.from_numpy(np.searchsorted(classes, labels))
    for span, part in numbers(features, torch.float64):
        if not torch.isfinite(part).all():
            raise InputError(f"the features of {block} hold NaN or infinite values: fill or drop those rows.")
        statistics.fold(part, targets[span])
    return statistics, rows


def merge_summaries(
    one: tuple[ClassStatistics, Tensor], other: tuple[ClassStatistics, Tensor]
) -> tuple[ClassStatistics, Tensor]:
    return one[0].merge(other[0]), torch.cat([one[1], other[1]])
