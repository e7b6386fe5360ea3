"""Ties to wrong classes: whether they look like a shortcut, and what they cost each class."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from icda.auditing.rows import RowSums
from icda.heads.cross_fit import cross_fitted_logits
from icda.heads.problem import LossSettings, Problem, rebalance

PARTNERS = 3  # samples of the other class that each suspect is compared with
FEWEST = 20  # suspects below which we do not say what they are


@dataclass(frozen=True)
class Separability:
    """Whether suspects that are predicted wrongly can be told from the class they are taken for, at the same margin.

    `auroc` is about 0.5 for wrong labels, which are samples of that class, and for classes that overlap; a shortcut leaves
    the suspects their own class's features, so it lies above. `low` and `high` bound it with 95 % (Hanley & McNeil 1982).
    """

    auroc: float
    low: float
    high: float
    samples: int


def separability(problem: Problem, logits: Tensor, suspected: Tensor, folds: int, seed: int) -> Separability | None:
    """Train heads to tell (class, suspected and predicted wrongly or not) apart, and ask held-out samples.

    Such a suspect stands beside those samples of the class it was taken for whose margin between the two classes is
    nearest. Without that, samples near a boundary would differ from those far behind it, and overlap would look like
    a tie.
    """
    targets = problem.targets
    predicted = logits.argmax(1)
    chosen = suspected & (predicted != targets)
    if int(chosen.sum()) < FEWEST:
        return None
    cells = 2 * targets + chosen.long()
    by_cell = replace(problem, targets=cells, num_classes=2 * problem.num_classes)
    by_cell = rebalance(by_cell, torch.zeros_like(cells))
    # Other folds than those that found the suspects, or a fold's luck would be seen twice.
    settings = LossSettings("ce")
    found = cross_fitted_logits(by_cell, settings, cells, folds, seed=seed + 1_000, together=True).double().numpy()
    margins, own, other, part = logits.double().numpy(), targets.numpy(), predicted.numpy(), chosen.numpy()
    suspects, partners = [], []
    for a, c in np.unique(np.stack([own, other], 1)[part], axis=0):
        rows = np.flatnonzero((own == a) & (other == c) & part)
        peers = np.flatnonzero((own == c) & ~part)
        if len(peers) == 0:
            continue
        peers = peers[
            nearest_rows(margins[rows, c] - margins[rows, a], margins[peers, c] - margins[peers, a], PARTNERS)
        ]
        suspects.append(found[rows, 2 * a + 1] - found[rows, 2 * c])
        partners.append(found[peers, 2 * a + 1] - found[peers, 2 * c])
    if sum(map(len, suspects)) < FEWEST:
        return None
    return _auroc(np.concatenate(suspects), np.concatenate(partners))


def nearest_rows(wanted: np.ndarray, offered: np.ndarray, count: int) -> np.ndarray:
    """For each value sought the positions of about `count` offered ones next to it; the same one may serve several.

    >>> nearest_rows(np.array([0.9, 5.0]), np.array([5.1, 0.0, 1.0, 4.9]), 2).tolist()
    [1, 2, 3, 0]
    """
    count = min(count, len(offered))
    order = np.argsort(offered, kind="stable")
    first = np.searchsorted(offered[order], wanted) - count // 2
    return order[np.clip(first, 0, len(offered) - count)[:, None] + np.arange(count)].ravel()


def _auroc(suspects: np.ndarray, partners: np.ndarray) -> Separability:
    truth = np.concatenate([np.ones(len(suspects)), np.zeros(len(partners))])
    area = float(roc_auc_score(truth, np.concatenate([suspects, partners])))
    n = len(suspects)  # partners serve several times: count as many of them as there are suspects
    first, second = area / (2 - area), 2 * area**2 / (1 + area)
    variance = (area * (1 - area) + (n - 1) * (first + second - 2 * area**2)) / n**2
    reach = 1.96 * math.sqrt(max(variance, 0.0))
    return Separability(area, max(area - reach, 0.0), min(area + reach, 1.0), n)


@dataclass(frozen=True)
class ClassCost:
    """A class's suspected part beside the rest: sizes, and the share that heads which have not seen them get right."""

    name: str
    samples: int
    suspected: int
    tied_to: str | None  # the class most of the suspected part is tied to
    mean_strength: float | None  # of the suspected part towards the class each is tied to
    accuracy: float
    accuracy_suspected: float | None
    accuracy_rest: float | None

    @property
    def gap(self) -> float:
        if self.accuracy_suspected is None or self.accuracy_rest is None:
            return 0.0
        return self.accuracy_rest - self.accuracy_suspected


def class_costs(sums: RowSums, counts: np.ndarray, names: list[str]) -> list[ClassCost]:
    """What the ties of each class cost it, from sums over all rows."""
    costs = []
    for k, name in enumerate(names):
        part = int(sums.tied_to[k].sum())
        rest = int(counts[k]) - part
        costs.append(
            ClassCost(
                name,
                int(counts[k]),
                part,
                names[int(sums.tied_to[k].argmax())] if part else None,
                float(sums.strength[k] / part) if part else None,
                float(sums.right[k] / counts[k]),
                float(sums.right_suspected[k] / part) if part else None,
                float((sums.right[k] - sums.right_suspected[k]) / rest) if rest else None,
            )
        )
    return costs
