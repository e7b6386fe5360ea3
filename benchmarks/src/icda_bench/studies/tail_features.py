"""Linear heads on frozen features of long-tailed pictures: where most users of the losses are.

The training part has a long tail, validation and test part are balanced. Fitted are the losses, a Gaussian discriminant in
closed form, and what lies between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icda.data.bias.long_tail import long_tail
from icda.data.datasets.cifar import load_cifar10
from icda.data.datasets.tiny_imagenet import HELD_OUT, TRAIN, locate_file, read_stored
from icda.data.generators import generator_for
from icda.data.registry import data_root
from icda.data.sources import ImageArray
from icda.data.splits import take_per_class
from icda.estimators.classifier import ICDAClassifier
from icda.heads.problem import LossName, LossSettings, Problem
from icda.heads.solver import fit_head
from icda.settings import check_names
from icda_bench.markdown import grouped, markdown, numbers, percent
from icda_bench.options import Root
from icda_bench.rows import Row, fill, machine_columns
from icda_bench.studies.features import FeaturePart, FeatureSet, embed_images

BLOCK = 10_000  # pictures per file of the cache: a run that is killed goes on with the next
CIFAR_IMAGES = 20_000  # of the 50,000 training images: about 2,000 per class
CIFAR_TEST_IMAGES = 5_000
CIFAR_VALIDATION = 50  # images per class
DIRECTIONS = 256  # of 1,280 features
TINY_VALIDATION = 10
MANY, FEW = 100, 20  # a class of more than MANY images is frequent, one of fewer than FEW rare (ImageNet-LT's limits)


@dataclass(frozen=True)
class TailSet(FeatureSet):
    """A long-tailed training part, and two balanced ones: to choose the weight decay on, and to judge on."""

    limits: tuple[int, int] = (MANY, FEW)
    fixed_training: bool = False  # the same training part whatever the seed

    def reduced(self, directions: int) -> TailSet:
        """The principal directions of the training part, largest first: heads are fitted five times as fast."""
        centred = self.train.features - self.train.features.mean(0)
        _, vectors = np.linalg.eigh(centred.T.astype(np.float64) @ centred / len(centred))
        basis = vectors[:, ::-1][:, :directions].astype(np.float32)
        return self.changed(lambda features: features @ basis)

    def kinds(self) -> dict[str, np.ndarray]:
        """The classes with many, a medium number and few training images."""
        (most, least), counts = self.limits, np.bincount(self.train.targets)
        return {
            "many": np.flatnonzero(counts > most),
            "medium": np.flatnonzero((counts <= most) & (counts >= least)),
            "few": np.flatnonzero(counts < least),
        }


def cifar10_lt(root: Path, seed: int, cache: Path, ratio: int) -> TailSet:
    """20,000 images of CIFAR-10 cut to a long tail. The seed draws them: fifty per class for validation, then the tail."""
    whole, test = _cifar10(root, cache)
    labels = torch.from_numpy(whole.targets)
    drawn = long_tail(labels, ratio, generator_for(seed, "tail_features"), metadata_per_class=CIFAR_VALIDATION)
    assert drawn.metadata is not None
    train, validation = (whole.rows(rows.numpy()) for rows in (drawn.train, drawn.metadata))
    # Three of ten classes each: the usual limits would call none of them rare at 10:1.
    counts = np.sort(np.bincount(train.targets))
    return TailSet(train, validation, test, (int(counts[-4]), int(counts[3])))


def tiny_imagenet_lt(root: Path, seed: int, cache: Path) -> TailSet:
    """A hundred classes, 500 to 5 images. The training part is fixed; the seed splits the balanced pictures."""
    stored = read_stored(locate_file(root))
    whole = FeaturePart(_embedded(stored.images, cache / "tail_tiny_imagenet"), stored.labels.numpy())
    split = stored.split
    held_out = (split == HELD_OUT).nonzero().flatten()
    chosen, rest = take_per_class(stored.labels[held_out], [TINY_VALIDATION], generator_for(seed, "tail_features"))
    rows = ((split == TRAIN).nonzero().flatten(), held_out[chosen], held_out[rest])
    train, validation, test = (whole.rows(part.numpy()) for part in rows)
    return TailSet(train, validation, test, fixed_training=True)


SETS: dict[str, Callable[[Path, int, Path], TailSet]] = {
    "cifar10_lt_100": partial(cifar10_lt, ratio=100),
    "cifar10_lt_10": partial(cifar10_lt, ratio=10),
    "tiny_imagenet_lt": tiny_imagenet_lt,
}


@lru_cache(maxsize=1)
def _cifar10(root: Path, cache: Path) -> tuple[FeaturePart, FeaturePart]:
    data = load_cifar10(root)
    source = data.test.source
    assert isinstance(source, ImageArray)
    train = _embedded(data.source.images[:CIFAR_IMAGES].numpy(), cache / "tail_cifar10_train")
    test = _embedded(source.images[:CIFAR_TEST_IMAGES].numpy(), cache / "tail_cifar10_test")
    labels, test_labels = data.labels[:CIFAR_IMAGES].numpy(), data.test.targets[:CIFAR_TEST_IMAGES].numpy()
    return FeaturePart(train, labels), FeaturePart(test, test_labels)


def _embedded(images: np.ndarray, stem: Path) -> np.ndarray:
    """Features of EfficientNet-Lite0 at 128 pixels, computed once, a file per block."""
    starts = range(0, len(images), BLOCK)
    blocks = [
        embed_images(images[start : start + BLOCK], stem.with_name(f"{stem.name}_{start}.npy")) for start in starts
    ]
    return np.concatenate(blocks)


INVERSE_DECAYS = (1e-4, 1e-3, 1e-2, 1e-1)  # what C is chosen from
SHRINKAGES = (0.03, 0.1, 0.3, 0.6, 0.9)  # how far the pooled covariance is drawn to a multiple of the identity
NEIGHBOURS = 3  # head classes that a tail class borrows from
BORROWED_MASS = 100.0  # as if so many samples of them had been seen in each class
LITTLE = 0.1  # a smaller lambda0 than ICDA's 0.5, from the paper's own range
MAX_ITER = 200

Logits = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class TailHead:
    """A row of the table: its name, its title and the values of the one number that is chosen on validation data."""

    name: str
    title: str
    choices: tuple[float, ...] = INVERSE_DECAYS


ROWS = (
    TailHead("ce", "cross entropy"),
    TailHead("la", "logit adjustment"),
    TailHead("isda", "ISDA"),
    TailHead("risda", "RISDA"),
    TailHead("icda", "ICDA"),
    TailHead("icda_little", "ICDA, λ0 = 0.1"),
    TailHead("icda_borrowed", "ICDA, tail covariances borrowed"),
    TailHead("gda", "Gaussian discriminant, pooled shrunk covariance", SHRINKAGES),
    TailHead("la_from_gda", "logit adjustment, decay towards the Gaussian discriminant"),
)


class Heads:
    """Heads fitted to one training part; a discriminant that several rows need is computed once."""

    def __init__(self, train: FeaturePart, start_shrinkage: float = 0.3) -> None:
        self.train, self.start_shrinkage = train, start_shrinkage
        self._gaussian: GaussianDiscriminant | None = None

    def fit(self, row: str, choice: float) -> Logits:
        """The logits of a row's head, with one value of what is chosen."""
        if row == "gda":
            return self.gaussian.logits(choice)
        if row == "la_from_gda":
            return self._from_gaussian(choice)
        if row == "icda_borrowed":
            return self._borrowed(choice)
        if row == "icda_little":
            model = ICDAClassifier("icda", C=choice, lambda0=LITTLE, max_iter=MAX_ITER)
        else:
            model = ICDAClassifier(row, C=choice, max_iter=MAX_ITER)  # type: ignore[arg-type]
        return model.fit(self.train.features, self.train.targets).decision_function

    @property
    def gaussian(self) -> GaussianDiscriminant:
        if self._gaussian is None:
            self._gaussian = GaussianDiscriminant(self.train)
        return self._gaussian

    def _from_gaussian(self, C: float) -> Logits:
        """LA for W0 + V with the decay on V alone: the discriminant where C is small, plain LA where it is large."""
        start = self.gaussian.logits(self.start_shrinkage)
        prior = np.log(np.bincount(self.train.targets))
        model = ICDAClassifier("la", C=C, max_iter=MAX_ITER)
        model.fit(self.train.features, self.train.targets, log_prior=start(self.train.features) + prior)
        return lambda features: model.decision_function(features) + start(features)

    def _borrowed(self, C: float, loss: LossName = "icda") -> Logits:
        features = torch.from_numpy(np.ascontiguousarray(self.train.features, dtype=np.float32))
        targets = torch.from_numpy(self.train.targets)
        problem = Problem.of(features, targets, int(targets.max()) + 1, C)
        problem = replace(problem, covariance_mixing=torch.from_numpy(borrowing(self.train)))
        head = fit_head(problem, LossSettings(loss), max_iter=MAX_ITER)
        return lambda rows: head.logits(torch.from_numpy(rows.astype(np.float32))).numpy()


class GaussianDiscriminant:
    """Class means and one covariance for all classes, drawn to a multiple of the identity; equal priors; closed form.

    w_c = S^-1 mu_c and b_c = -mu_c^T S^-1 mu_c / 2. The test part is balanced, so equal priors are to it what LA is to
    cross entropy. One eigendecomposition serves all shrinkages.
    """

    def __init__(self, train: FeaturePart) -> None:
        features, targets = train.features.astype(np.float64), train.targets
        counts = np.bincount(targets)
        self.means = np.stack([features[targets == label].mean(0) for label in range(len(counts))])
        residuals = features - self.means[targets]
        self._values, self._vectors = np.linalg.eigh(residuals.T @ residuals / len(targets))

    def logits(self, shrinkage: float) -> Logits:
        values = np.clip(self._values, 0, None)
        spectrum = (1 - shrinkage) * values + shrinkage * values.mean()
        weight = (self.means @ self._vectors / spectrum) @ self._vectors.T
        bias = -0.5 * (weight * self.means).sum(1)
        weight, bias = weight.astype(np.float32), bias.astype(np.float32)
        return lambda features: features @ weight.T + bias


def borrowing(train: FeaturePart) -> np.ndarray:
    """Mixing (C, C) of covariances: a class of n samples gives its own the share n / (n + 100), its neighbours the rest.

    Neighbours are the three of the more frequent half of the classes whose means are nearest. Rows sum to one, and a
    class with thousands of samples keeps nearly all of its own.
    """
    counts = np.bincount(train.targets)
    means = np.stack([train.features[train.targets == label].mean(0) for label in range(len(counts))])
    heads = np.argsort(-counts, kind="stable")[: (len(counts) + 1) // 2]
    own = counts / (counts + BORROWED_MASS)
    mixing = np.diag(own)
    for label in range(len(counts)):
        others = heads[heads != label]
        nearest = others[np.argsort(np.linalg.norm(means[others] - means[label], axis=1), kind="stable")[:NEIGHBOURS]]
        mixing[label, nearest] += (1 - own[label]) / len(nearest)
    return mixing


KINDS = ("many", "medium", "few")
TITLES = {
    "cifar10_lt_100": "CIFAR-10, 100:1",
    "cifar10_lt_10": "CIFAR-10, 10:1",
    "tiny_imagenet_lt": "Tiny ImageNet, 100 classes, 100:1",
}


@dataclass
class Arguments:
    """Fit heads on EfficientNet-Lite0's features of long-tailed CIFAR-10 and Tiny ImageNet; finished cells are kept."""

    sets: tuple[str, ...] = ()
    """Only these sets: cifar10_lt_100, cifar10_lt_10, tiny_imagenet_lt."""
    methods: tuple[str, ...] = ()
    """Only these rows of the table."""
    seeds: int = 5
    """Seeds of each row: which images make tail and validation data (CIFAR-10), or the split of the balanced images."""
    root: Root = None
    cache: Path = Path("runs/tail_features")
    """Folder for the features, computed once (41,000 images, about five minutes on one core)."""
    out: Path = Path("runs/tail_features/tail_features.csv")
    """CSV file to fill (benchmarks/results/tail_features.csv is ours)."""


def judge(data: TailSet, fits: Heads, row: TailHead, heads: dict[tuple[str, float], Any]) -> Row:
    """The best of a row's heads on validation data: what was chosen, and accuracies on the balanced test part.

    `heads` keeps what was fitted.
    """
    started, best = time.perf_counter(), (-1.0, 0.0)
    for choice in row.choices:
        if (row.name, choice) not in heads:
            heads[row.name, choice] = fits.fit(row.name, choice)
        predicted = heads[row.name, choice](data.validation.features).argmax(1)
        right = float((predicted == data.validation.targets).mean())
        best = max(best, (right, choice), key=lambda pair: pair[0])
    score, chosen = best
    logits = heads[row.name, chosen](data.test.features)
    hits = logits.argmax(1) == data.test.targets
    per_class = np.array([hits[data.test.targets == label].mean() for label in range(logits.shape[1])])
    kinds = {name: round(float(per_class[classes].mean()), 5) for name, classes in data.kinds().items()}
    machine = {name: value or "" for name, value in machine_columns().items() if name != "threads"}
    return {
        "accuracy": round(float(per_class.mean()), 5),
        **kinds,
        "chosen": chosen,
        "validation_accuracy": round(score, 5),
        "samples": len(data.train.targets),
        "seconds": round(time.perf_counter() - started, 1),
        **machine,
    }


def tail_table(rows: Iterable[Row]) -> str:
    """Mean ± standard deviation over seeds, in per cent, for one set."""
    by_method, body = grouped(rows, itemgetter("method")), []
    for head in (head for head in ROWS if head.name in by_method):
        mine = by_method[head.name]
        chosen = ", ".join(f"{value:g}" for value in sorted(set(numbers(mine, "chosen"))))
        body.append([head.title, *(percent(mine, figure) for figure in ("accuracy", *KINDS)), chosen])
    return markdown(["head", "accuracy", *KINDS, "chosen"], body)


def tail_tables(rows: Iterable[Row]) -> str:
    """All sets that were run, one under the other."""
    by_set = grouped(rows, itemgetter("set"))
    return "\n\n".join(f"**{TITLES[name]}**\n\n{tail_table(by_set[name])}" for name in SETS if name in by_set)


def run(options: Arguments) -> None:
    check_names(options.sets, SETS, "icda bench tail-features", "set")
    check_names(options.methods, [row.name for row in ROWS], "icda bench tail-features", "method")
    chosen = {row.name: row for row in ROWS if not options.methods or row.name in options.methods}
    cells = ((name, method, seed) for name, seed, method in product(options.sets or SETS, range(options.seeds), chosen))
    kept: dict[tuple[str, int | None], dict[tuple[str, float], Any]] = {}

    @lru_cache(maxsize=1)
    def load(name: str, seed: int) -> tuple[TailSet, Heads]:
        data = SETS[name](data_root(options.root), seed, options.cache).standardised().reduced(DIRECTIONS)
        return data, Heads(data.train)

    def measure(name: str, method: str, seed: int) -> Row:
        data, heads = load(name, seed)
        fitted = kept.setdefault((name, None if data.fixed_training else seed), {})
        return judge(data, heads, chosen[method], fitted)

    print(tail_tables(fill(options.out, ("set", "method", "seed"), cells, measure)))
