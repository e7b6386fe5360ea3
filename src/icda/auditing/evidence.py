"""What the verdicts rest on: a few figures of heads that have not seen the samples they are about."""

from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from icda.cross_fit.flatness import Flatness, flatness, flattest_side, margin_of
from icda.cross_fit.pairs import DECAY, MAX_ITER, PAIR_RATIO, TOL, PairEvidence, measure_pair, quick_logits, share
from icda.cross_fit.twins import LENGTH, scaled_to
from icda.heads.cross_fit import balanced_share, folds_of_strata
from icda.heads.problem import LossSettings, Problem
from icda.heads.solver import fit_head

SAMPLES = 3000  # the questions are about shares and medians: more samples would change the answers little and cost much
WIDTH = 128  # principal directions kept; simple functions of an embedding lie in those
FEW = 15  # samples below which a class is left out of the question for a shortcut
PAIRS = 10  # pairs of classes looked at
PAIR_SAMPLES = 1500  # of each class of a pair
UNEVEN = 4  # times the smaller class: a larger one is looked at as a whole


@dataclass(frozen=True)
class Evidence:
    """Figures of the data as a whole, and of pairs of classes."""

    samples: int
    class_counts: list[int]
    predicted_counts: list[int]  # how often plain heads say each class of samples they have not seen
    accuracy: float  # of plain heads
    balanced_accuracy: float  # after the class prior was taken off
    standard_error: float  # of the balanced accuracy, if heads only guessed
    error_sureness: float  # median margin of errors over that of what is right
    sure_errors: float  # share of errors among the surest predictions over the share among all
    sided: Flatness  # the same two of what is predicted as one class, where wrong labels hide most
    pairs: list[PairEvidence]
    lost: float = 0.0  # accuracy that heads on all features have more than heads on the sketch, beyond chance

    @property
    def num_classes(self) -> int:
        return len(self.class_counts)

    @property
    def errors(self) -> float:
        return 1 - self.accuracy

    @property
    def ratio(self) -> float:
        """Largest class over smallest."""
        return max(self.class_counts) / min(self.class_counts)

    @property
    def predicted_ratio(self) -> float:
        """The same of what plain heads say: wrong labels fill rare classes, heads do not believe them."""
        return max(self.predicted_counts) / max(min(self.predicted_counts), 1)

    @property
    def skill(self) -> float:
        """Balanced accuracy on a scale from guessing, 0, to perfection, 1."""
        guess = 1 / self.num_classes
        return (self.balanced_accuracy - guess) / (1 - guess)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Sketch:
    """All samples in a few principal directions (N, W), and the rows, some or all, that questions are asked about.

    `whole` are all features of those rows, where the directions are fewer than the features; else None.
    """

    features: Tensor
    rows: Tensor
    whole: Tensor | None = None


def make_sketch(features: Tensor) -> Sketch:
    """No more than `WIDTH` directions, and a quarter of the samples asked about, so that heads can be fitted."""
    generator = torch.Generator().manual_seed(0)
    count = len(features)
    rows = torch.arange(count)
    if count > SAMPLES:
        rows = torch.randperm(count, generator=generator)[:SAMPLES].sort().values
    width, whole = min(WIDTH, max(16, len(rows) // 4)), None
    if features.shape[1] > width:
        whole = scaled_to(features[rows].float(), LENGTH)
        features = features.float() @ principal_directions(features[rows].float(), width, generator)
    return Sketch(scaled_to(features.float(), LENGTH), rows, whole)


def principal_directions(features: Tensor, width: int, generator: torch.Generator) -> Tensor:
    """The first `width` principal directions (A, width) by subspace iteration, exact where they stand out."""
    centred = features - features.mean(0)
    basis = torch.randn(features.shape[1], min(width + 8, *features.shape), generator=generator)
    for _ in range(2):
        basis = torch.linalg.qr(centred.T @ (centred @ basis))[0]
    _, vectors = torch.linalg.eigh((centred @ basis).T @ (centred @ basis))
    return basis @ vectors.flip(1)[:, :width]


def gather_evidence(sketch: Sketch, targets: Tensor, num_classes: int, seed: int = 0) -> Evidence:
    """Measure everything on the rows of the sketch; class sizes are those of all samples."""
    generator = torch.Generator().manual_seed(seed)
    features, labels = sketch.features[sketch.rows], targets[sketch.rows]
    logits = quick_logits(Problem.plain(features, labels, num_classes, DECAY), LossSettings("ce"), labels, seed)
    right = logits.argmax(1) == labels
    margins = margin_of(logits)
    overall = flatness(margins, right)
    # Without the log of the class counts, what is left does not rest on how frequent a class is.
    counts = torch.bincount(labels, minlength=num_classes)
    balanced = (logits - counts.clamp(min=1).log()).argmax(1) == labels
    guess, present = 1 / num_classes, counts[counts > 0].double()
    return Evidence(
        samples=len(targets),
        class_counts=torch.bincount(targets, minlength=num_classes).tolist(),
        predicted_counts=torch.bincount(logits.argmax(1), minlength=num_classes).tolist(),
        accuracy=share(right),
        balanced_accuracy=balanced_share(balanced, labels),
        standard_error=float((guess * (1 - guess) / present).sum().sqrt() / len(present)),
        error_sureness=overall.error_sureness,
        sure_errors=overall.sure_errors,
        sided=flattest_side(overall, margins, logits.argmax(1), right),
        pairs=[
            measure_pair(features[rows], (labels[rows] == pair[1]).long(), pair, seed, uneven=uneven)
            for pair, rows, uneven in pair_rows(labels, generator)
        ],
        lost=lost_accuracy(sketch, labels, num_classes, seed),
    )


def lost_accuracy(sketch: Sketch, labels: Tensor, num_classes: int, seed: int) -> float:
    """How much more heads on all features get right than heads on the sketch, less two standard errors; 0 if not more.

    One split into halves: what tells the classes apart may lie in directions of little variance, which the sketch lacks.
    """
    if sketch.whole is None:
        return 0.0
    inside = folds_of_strata(labels, 2, seed) == 0
    right = []
    for features in (sketch.whole, sketch.features[sketch.rows]):
        problem = Problem.plain(features, labels, num_classes, DECAY).rows(inside)
        head = fit_head(problem, LossSettings("ce"), MAX_ITER, TOL)
        right.append((head.logits(features[~inside]).argmax(1) == labels[~inside]).double())
    gained = right[0] - right[1]
    return max(float(gained.mean() - 2 * gained.std() / max(len(gained), 1) ** 0.5), 0.0)


def pair_rows(targets: Tensor, generator: torch.Generator) -> list[tuple[tuple[int, int], Tensor, bool]]:
    """Up to `PAIRS` pairs of classes that have samples enough, the rows to look at for each, and whether it is uneven.

    A larger class is cut to `PAIR_RATIO` times the smaller. Above `UNEVEN` times that would leave too few samples to ask
    about: then all are asked about, the pair is uneven, and only cuts train twins.
    """
    counts = torch.bincount(targets)
    large = [k for k in range(len(counts)) if counts[k] >= FEW]
    pairs = list(combinations(large, 2))
    if len(pairs) > PAIRS:
        pairs = [pairs[k] for k in torch.randperm(len(pairs), generator=generator)[:PAIRS].sort().values.tolist()]
    chosen = []
    for first, second in pairs:
        small, large_one = sorted((int(counts[first]), int(counts[second])))
        uneven = large_one > UNEVEN * small
        most = PAIR_SAMPLES if uneven else min(PAIR_SAMPLES, PAIR_RATIO * small)
        parts = [(targets == k).nonzero().flatten() for k in (first, second)]
        parts = [part[torch.randperm(len(part), generator=generator)[:most]] for part in parts]
        chosen.append(((first, second), torch.cat(parts).sort().values, uneven))
    return chosen
