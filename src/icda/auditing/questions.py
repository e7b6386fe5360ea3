"""`icda.ask`: which samples a person should look at next, so that few answers repair a shortcut."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icda.auditing.inputs import DECAY, check_inputs
from icda.data.missing import encode_known
from icda.errors import InputError
from icda.functional.prior import joint_counts
from icda.heads.blocks import BlockRows
from icda.heads.cross_fit import balanced_share
from icda.heads.dealing import ranks_within, scrambled
from icda.heads.spreading import ClassLogits, ReadingQuality, SpreadReader
from icda.statistics.checks import check_number

FIRST = 6  # answers about samples drawn from all, at least one per class while there are few classes
SUSPECTED = 24  # answers up to which samples are drawn from those that heads contradict; then the answers lead
MOST_FIRST = 12
PARTS = 5  # of the answers; readers fitted without one each say whether more answers would change anything
STABLE = 0.97  # of the samples keep their reading then, every pair of class and value counting alike


@dataclass(frozen=True)
class Questions:
    """Samples to ask a person about, in the order to show them.

    `index` are sample numbers (n,), `reasons` a sentence for each. `enough` says that more answers would change little:
    `stability` is 0.97 or more, the share of samples whose group all readers fitted without a fifth of the answers read as
    the reader of all answers does, every pair of class and group counting alike (None before there are 24 answers of two
    kinds). `quality` is how well groups can be read so far, on answers the reader was not fitted to. `predicted` (N,) is
    the class that heads which have not seen a sample give it, and `contradicted` (N,) whether that is not its label.
    """

    index: np.ndarray
    reasons: list[str]
    enough: bool
    stability: float | None
    quality: ReadingQuality | None
    contradicted: np.ndarray
    predicted: np.ndarray


def ask(X: Any, y: Any, groups: Any = None, n: int = 12, *, skip: Any = (), seed: int = 0) -> Questions:
    """Choose the next samples whose group a person should name.

    First come samples of every class, then those whose label a head that has not seen them contradicts: there a shortcut
    shows. From 24 answers on, half are read as a rare group of their class, and half are least clear.

    Args:
        X: Features (N, A).
        y: Labels (N,).
        groups: What is known so far (N,): None, NaN or pandas.NA where nothing is.
        n: How many samples to choose.
        skip: Numbers of samples not to ask about, because a person could not tell.
        seed: Of the draws; the same seed chooses the same samples.

    Returns:
        The samples with the reasons, and whether more answers are needed at all.

    >>> generator = np.random.default_rng(0)
    >>> y = np.repeat(["cat", "dog"], 100)
    >>> X = generator.normal(size=(200, 8)) + 2 * (y == "dog")[:, None]
    >>> asked = ask(X, y, n=4)
    >>> len(asked.index), asked.enough
    (4, False)
    """
    check_number(n, "n", "ask", 1, whole=True)
    check_number(seed, "seed", "ask", whole=True)
    features, targets, names, _ = check_inputs(X, y, None, None, folds=2)
    count = len(targets)
    codes = np.full(count, -1)
    if groups is not None:
        if np.shape(groups) != (count,):
            raise InputError(f"ask expects one group per sample, {count} in all, got shape {np.shape(groups)}.")
        codes = encode_known(groups)[0]
    rows = BlockRows.of_memory(features, targets, len(names), seed=seed)
    return choose(rows, ClassLogits.of(rows, DECAY * features.shape[1]), codes, n, skip, names)


def choose(
    rows: BlockRows, shown: ClassLogits, codes: np.ndarray, n: int, skip: Any = (), names: Sequence[str] | None = None
) -> Questions:
    """`ask` for rows in memory whose class heads are fitted; `codes` (N,) are the groups known so far, -1 where none is."""

    def named(code: Tensor) -> str:
        return str(int(code)) if names is None else names[int(code)]

    def at_random(row: int) -> str:
        return f"drawn at random from {named(targets[row])}"

    targets, seed = rows.everything.targets, rows.reading.seed
    predicted = rows.gathered(shown.heads.held_out).argmax(1)
    contradicted = (predicted != targets).numpy()
    known = np.flatnonzero(codes >= 0)
    reader = stability = None
    if len(known) and len(np.unique(codes[known])) > 1:
        reader = _reader(rows, known, codes, shown)
        if len(known) >= SUSPECTED:
            stability = _stability(rows, known, codes, shown, reader, seed)
    free = codes < 0
    free[np.asarray(list(skip), dtype=np.int64)] = False
    draw = _Draw(targets.numpy(), free, seed + len(known))
    first = min(max(FIRST, rows.num_classes), MOST_FIRST)
    while len(draw.chosen) < n and draw.free.any():
        answered, wanted = len(known) + len(draw.chosen), n - len(draw.chosen)
        if answered < first:
            draw.take(draw.free, min(first - answered, wanted), at_random)
        elif answered < SUSPECTED or reader is None:
            wanted = wanted if reader is None else min(SUSPECTED - answered, wanted)
            draw.take(contradicted, wanted, lambda row: f"a plain model takes it for {named(predicted[row])}")
            draw.take(draw.free, wanted - draw.added, at_random)
        else:
            _ask_reader(draw, rows, reader, targets, wanted)
    enough = stability is not None and stability >= STABLE
    quality = None if reader is None else reader.quality
    index = np.array(draw.chosen, dtype=np.int64)
    return Questions(index, draw.reasons, enough, stability, quality, contradicted, predicted.numpy())


class _Draw:
    """Samples chosen so far, by a draw that follows from the seed and takes the classes in turn."""

    def __init__(self, targets: np.ndarray, free: np.ndarray, seed: int) -> None:
        self.targets, self.free = targets, free
        self.order = scrambled(np.arange(len(targets)), seed)
        self.chosen: list[int] = []
        self.reasons: list[str] = []
        self.added = 0  # by the last call

    def take(self, wanted: np.ndarray, number: int, why: Any) -> None:
        """Up to `number` of the free samples (N,) that are wanted, the classes in turn."""
        rows = np.flatnonzero(wanted & self.free)
        rows = rows[np.argsort(self.order[rows], kind="stable")]
        rank = ranks_within(self.targets[rows], np.zeros(self.targets.max() + 1, dtype=np.int64))
        self.give(rows[np.argsort(rank, kind="stable")][: max(number, 0)], why)

    def give(self, rows: np.ndarray, why: Any) -> None:
        for row in rows.tolist():
            self.chosen.append(row)
            self.reasons.append(why(row))
            self.free[row] = False
        self.added = len(rows)


def _ask_reader(draw: _Draw, rows: BlockRows, reader: SpreadReader, targets: Tensor, wanted: int) -> None:
    """Half: samples read as a group that is rare in their class; half: those whose group is least clear."""
    read = rows.gathered(reader.read)
    rare = (read != joint_counts(targets, read, rows.num_classes, reader.number).argmax(1)[targets]).numpy()
    draw.take(rare, wanted // 2, lambda row: "it seems to be unusual for its class")
    best = rows.gathered(reader.probabilities).topk(2, 1).values
    margin = (best[:, 0] - best[:, 1]).numpy()
    free = np.flatnonzero(draw.free)
    unsure = free[np.argsort(margin[free], kind="stable")][: wanted - draw.added]
    draw.give(unsure, lambda row: "its group is least clear")


def _reader(rows: BlockRows, known: np.ndarray, codes: np.ndarray, shown: ClassLogits) -> SpreadReader:
    values = torch.from_numpy(codes[known])
    return SpreadReader.of(rows, torch.from_numpy(known), values, int(codes.max()) + 1, shown)


def _stability(
    rows: BlockRows, known: np.ndarray, codes: np.ndarray, shown: ClassLogits, reader: SpreadReader, seed: int
) -> float:
    """The share of samples that readers fitted without a fifth of the answers read alike, pairs counting alike."""
    whole = rows.gathered(reader.read)
    pairs = rows.everything.targets * reader.number + whole
    part = scrambled(known, seed).argsort().argsort() % PARTS
    same = torch.zeros(len(whole), dtype=torch.float64)
    for left_out in range(PARTS):
        kept = known[part != left_out]
        own = codes.copy()
        own[known[part == left_out]] = -1
        if own.max() < reader.number - 1 or len(np.unique(own[kept])) < 2:
            return 0.0
        other = _reader(rows, kept, own, shown)
        same += (rows.gathered(other.guess) == whole).double() / PARTS
    return balanced_share(same, pairs)
