"""Heads on long-tailed features: the closed form is its formula, and what lies between two heads has both as limits."""

import numpy as np
import pytest

from icda.estimators.classifier import ICDAClassifier
from icda_bench.studies.features import FeaturePart
from icda_bench.studies.tail_features.heads import BORROWED_MASS, ROWS, GaussianDiscriminant, Heads, borrowing

COUNTS = (120, 60, 30, 8)


def planted(seed: int = 0, counts: tuple[int, ...] = COUNTS, width: int = 6) -> FeaturePart:
    generator = np.random.default_rng(seed)
    targets = np.repeat(np.arange(len(counts)), counts)
    centres = 1.5 * np.random.default_rng(99).normal(size=(len(counts), width))
    return FeaturePart((centres[targets] + generator.normal(size=(len(targets), width))).astype(np.float32), targets)


@pytest.mark.parametrize("shrinkage", [0.0, 0.3, 0.9])
def test_the_discriminant_is_its_formula(shrinkage: float) -> None:
    train, judged = planted(), planted(1).features
    means = [train.features[train.targets == c].astype(np.float64).mean(0) for c in range(4)]
    pooled = np.zeros((6, 6))
    for row, c in zip(train.features.astype(np.float64), train.targets, strict=True):
        pooled += np.outer(row - means[c], row - means[c]) / len(train.targets)
    inverse = np.linalg.inv((1 - shrinkage) * pooled + shrinkage * np.trace(pooled) / 6 * np.eye(6))
    wanted = [[x @ inverse @ mean - 0.5 * mean @ inverse @ mean for mean in means] for x in judged]
    np.testing.assert_allclose(GaussianDiscriminant(train).logits(shrinkage)(judged), wanted, rtol=1e-3, atol=1e-3)


def test_full_shrinkage_is_the_nearest_class_mean() -> None:
    train, judged = planted(), planted(1).features
    means = np.stack([train.features[train.targets == c].mean(0) for c in range(4)])
    nearest = ((judged[:, None] - means) ** 2).sum(2).argmin(1)
    assert (GaussianDiscriminant(train).logits(1.0)(judged).argmax(1) == nearest).all()


def test_decay_towards_the_discriminant_has_it_and_logit_adjustment_as_limits() -> None:
    train, judged = planted(), planted(1).features
    heads = Heads(train)
    start = heads.gaussian.logits(heads.start_shrinkage)(judged)
    np.testing.assert_allclose(heads.fit("la_from_gda", 1e-9)(judged), start, atol=0.05)
    plain = ICDAClassifier("la", C=1e4, max_iter=200).fit(train.features, train.targets).decision_function(judged)
    free = heads.fit("la_from_gda", 1e4)(judged)
    assert (free.argmax(1) == plain.argmax(1)).mean() > 0.97


def test_a_class_borrows_the_more_the_fewer_samples_it_has_and_from_near_frequent_classes() -> None:
    counts = (400, 300, 200, 100, 10, 5)
    train = planted(counts=counts)
    mixing = borrowing(train)
    np.testing.assert_allclose(mixing.sum(1), 1)
    np.testing.assert_allclose(mixing.diagonal(), np.array(counts) / (np.array(counts) + BORROWED_MASS))
    assert (mixing[:, 3:] == np.diag(mixing.diagonal())[:, 3:]).all()  # nobody borrows from the rarer half
    means = np.stack([train.features[train.targets == c].mean(0) for c in range(6)])
    nearest = ((means[:3] - means[5]) ** 2).sum(1).argsort()
    assert (mixing[5, nearest] > 0.3).all()
    wide = borrowing(planted(counts=(400, 390, 380, 370, 360, 350, 340, 330, 20, 5)))
    assert ((wide > 0).sum(1) <= 4).all()  # itself and three others


@pytest.mark.parametrize("row", [row.name for row in ROWS])
def test_every_row_finds_the_planted_classes(row: str) -> None:
    choice = 0.3 if row == "gda" else 1e-2
    judged = planted(1, (50, 50, 50, 50))
    hits = Heads(planted()).fit(row, choice)(judged.features).argmax(1) == judged.targets
    least = {"ce": 0.5, "isda": 0.5, "risda": 0.26}.get(row, 0.75)  # RISDA's shifted means favour frequent classes
    assert hits.mean() > least


def test_a_little_augmentation_lies_between_logit_adjustment_and_icda() -> None:
    train, judged = planted(), planted(1).features
    plain, little, full = (Heads(train).fit(name, 0.1)(judged) for name in ("la", "icda_little", "icda"))
    assert 0 < np.abs(little - plain).mean() < np.abs(full - plain).mean()
