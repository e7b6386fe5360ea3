"""Heads on long-tailed features: the closed form is its formula, what lies between two heads has both as limits, and the
table grows row by row, chooses on validation data alone, and says what a seed is."""

from dataclasses import replace

import numpy as np
import pytest

from icda.estimators.classifier import ICDAClassifier
from icda_bench.rows import read_table
from icda_bench.studies import tail_features
from icda_bench.studies.features import FeaturePart
from icda_bench.studies.tail_features import (
    BORROWED_MASS,
    ROWS,
    Arguments,
    GaussianDiscriminant,
    Heads,
    TailHead,
    TailSet,
    borrowing,
    cifar10_lt,
    judge,
    run,
    tail_tables,
)

COUNTS = (120, 60, 30, 8)


def planted(seed=0, counts=COUNTS, width=6):
    generator = np.random.default_rng(seed)
    targets = np.repeat(np.arange(len(counts)), counts)
    centres = 1.5 * np.random.default_rng(99).normal(size=(len(counts), width))
    return FeaturePart((centres[targets] + generator.normal(size=(len(targets), width))).astype(np.float32), targets)


@pytest.mark.parametrize("shrinkage", [0.0, 0.3, 0.9])
def test_the_discriminant_is_its_formula(shrinkage):
    train, judged = planted(), planted(1).features
    means = [train.features[train.targets == c].astype(np.float64).mean(0) for c in range(4)]
    pooled = np.zeros((6, 6))
    for row, c in zip(train.features.astype(np.float64), train.targets, strict=True):
        pooled += np.outer(row - means[c], row - means[c]) / len(train.targets)
    inverse = np.linalg.inv((1 - shrinkage) * pooled + shrinkage * np.trace(pooled) / 6 * np.eye(6))
    wanted = [[x @ inverse @ mean - 0.5 * mean @ inverse @ mean for mean in means] for x in judged]
    np.testing.assert_allclose(GaussianDiscriminant(train).logits(shrinkage)(judged), wanted, rtol=1e-3, atol=1e-3)


def test_full_shrinkage_is_the_nearest_class_mean():
    train, judged = planted(), planted(1).features
    means = np.stack([train.features[train.targets == c].mean(0) for c in range(4)])
    nearest = ((judged[:, None] - means) ** 2).sum(2).argmin(1)
    assert (GaussianDiscriminant(train).logits(1.0)(judged).argmax(1) == nearest).all()


def test_decay_towards_the_discriminant_has_it_and_logit_adjustment_as_limits():
    train, judged = planted(), planted(1).features
    heads = Heads(train)
    start = heads.gaussian.logits(heads.start_shrinkage)(judged)
    np.testing.assert_allclose(heads.fit("la_from_gda", 1e-9)(judged), start, atol=0.05)
    plain = ICDAClassifier("la", C=1e4, max_iter=200).fit(train.features, train.targets).decision_function(judged)
    free = heads.fit("la_from_gda", 1e4)(judged)
    assert (free.argmax(1) == plain.argmax(1)).mean() > 0.97


def test_a_class_borrows_the_more_the_fewer_samples_it_has_and_from_near_frequent_classes():
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
def test_every_row_finds_the_planted_classes(row):
    choice = 0.3 if row == "gda" else 1e-2
    judged = planted(1, (50, 50, 50, 50))
    hits = Heads(planted()).fit(row, choice)(judged.features).argmax(1) == judged.targets
    least = {"ce": 0.5, "isda": 0.5, "risda": 0.26}.get(row, 0.75)  # RISDA's shifted means favour frequent classes
    assert hits.mean() > least


def test_a_little_augmentation_lies_between_logit_adjustment_and_icda():
    train, judged = planted(), planted(1).features
    plain, little, full = (Heads(train).fit(name, 0.1)(judged) for name in ("la", "icda_little", "icda"))
    assert 0 < np.abs(little - plain).mean() < np.abs(full - plain).mean()


def made_up(root, seed, cache):
    generator = np.random.default_rng(seed)

    def part(*counts: int) -> FeaturePart:
        targets = np.repeat(np.arange(3), counts)
        return FeaturePart(
            (2 * np.eye(3)[targets] + generator.normal(size=(len(targets), 3))).astype(np.float32), targets
        )

    return TailSet(part(150, 50, 10), part(20, 20, 20), part(40, 40, 40))


def test_rows_are_written_one_by_one_and_never_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(tail_features, "SETS", {"cifar10_lt_100": made_up})
    options = Arguments(methods=("la", "gda"), seeds=1, out=tmp_path / "tail.csv")
    run(options)
    before = options.out.read_text()
    run(replace(options, seeds=2))
    assert options.out.read_text().startswith(before)
    rows = read_table(options.out)
    assert [(row["method"], row["seed"]) for row in rows] == [("la", "0"), ("gda", "0"), ("la", "1"), ("gda", "1")]
    for row in rows:
        kinds = [float(row[kind]) for kind in tail_features.KINDS]  # one class of each
        assert float(row["accuracy"]) == pytest.approx(sum(kinds) / 3, abs=1e-4)
    text = tail_tables(rows)
    assert "**CIFAR-10, 100:1**" in text
    assert "(2)" in text
    assert "| logit adjustment |" in text


def test_the_choice_is_made_on_validation_data(tmp_path):
    data = made_up(tmp_path, 0, tmp_path)

    class Pretended(Heads):
        def fit(self, row: str, choice: float):
            """One head is right on validation data and wrong on test data, the other the other way round."""

            def logits(features: np.ndarray) -> np.ndarray:
                is_test = len(features) == len(data.test.targets)
                targets = data.test.targets if is_test else data.validation.targets
                return np.eye(3)[(targets + (is_test == (choice == 1.0))) % 3]

            return logits

    found = judge(data, Pretended(data.train), TailHead("any", "any", (0.1, 1.0)), {})
    assert found["chosen"] == 1.0
    assert found["validation_accuracy"] == 1.0
    assert found["accuracy"] == 0.0


def test_a_fixed_training_part_is_fitted_once_for_all_seeds(tmp_path, monkeypatch):
    fitted = []

    class Counting(Heads):
        def fit(self, row: str, choice: float):
            fitted.append(choice)
            return super().fit(row, choice)

    monkeypatch.setattr(tail_features, "Heads", Counting)
    for fixed, number in ((True, 5), (False, 10)):
        data = replace(made_up(tmp_path, 0, tmp_path), fixed_training=fixed)
        monkeypatch.setattr(tail_features, "SETS", {"cifar10_lt_100": lambda *_, data=data: data})
        fitted.clear()
        run(Arguments(methods=("gda",), seeds=2, out=tmp_path / f"{fixed}.csv"))
        assert len(fitted) == number


def test_the_seed_draws_tail_and_validation_images_apart(tmp_path, monkeypatch):
    targets = np.repeat(np.arange(10), 550)
    numbers = np.arange(5500, dtype=np.float32)[:, None]  # a feature that names the image
    everything = (FeaturePart(numbers, targets), FeaturePart(numbers[:10], targets[:10]))
    monkeypatch.setattr(tail_features, "_cifar10", lambda root, cache: everything)
    first, again, second = (cifar10_lt(tmp_path, seed, tmp_path, 100) for seed in (0, 0, 1))
    assert not set(first.train.features[:, 0]) & set(first.validation.features[:, 0])
    assert (np.bincount(first.validation.targets) == 50).all()
    assert np.bincount(first.train.targets).tolist() == [500, 299, 179, 107, 64, 38, 23, 13, 8, 5]
    assert np.array_equal(first.train.features, again.train.features)
    assert not np.array_equal(first.train.features, second.train.features)
    assert [len(classes) for classes in first.kinds().values()] == [3, 4, 3]


def test_principal_directions_are_those_of_the_training_part_largest_first(tmp_path):
    data = made_up(tmp_path, 0, tmp_path)
    _, values, vectors = np.linalg.svd(data.train.features - data.train.features.mean(0), full_matrices=False)
    reduced = data.reduced(2)
    np.testing.assert_allclose(reduced.train.features.std(0), values[:2] / np.sqrt(len(data.train.targets)), rtol=1e-4)
    for row in range(2):  # up to their sign
        wanted = data.test.features @ vectors[row]
        along = np.abs(np.dot(reduced.test.features[:, row], wanted)) / np.linalg.norm(wanted) ** 2
        assert along == pytest.approx(1, abs=1e-3)
