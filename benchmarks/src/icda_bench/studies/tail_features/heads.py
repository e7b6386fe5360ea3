"""What is fitted to long-tailed features: the losses, a Gaussian discriminant in closed form, and what lies between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from icda.estimators.classifier import ICDAClassifier
from icda.heads.problem import LossName, LossSettings, Problem
from icda.heads.solver import fit_head
from icda_bench.studies.features import FeaturePart

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
