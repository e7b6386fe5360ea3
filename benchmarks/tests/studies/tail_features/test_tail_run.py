"""The table of long-tailed features grows row by row, chooses on validation data alone, and says what a seed is."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from icda_bench.studies.features import FeaturePart
from icda_bench.studies.tail_features import run, sets
from icda_bench.studies.tail_features.heads import Heads, TailHead
from icda_bench.studies.tail_features.run import judge, run_tail_features, tail_tables
from icda_bench.studies.tail_features.sets import TailSet, cifar10_lt


def made_up(root: Path, seed: int, cache: Path) -> TailSet:
    generator = np.random.default_rng(seed)

    def part(*counts: int) -> FeaturePart:
        targets = np.repeat(np.arange(3), counts)
        return FeaturePart(
            (2 * np.eye(3)[targets] + generator.normal(size=(len(targets), 3))).astype(np.float32), targets
        )

    return TailSet("cifar10_lt_100", part(150, 50, 10), part(20, 20, 20), part(40, 40, 40))


def test_rows_are_written_one_by_one_and_never_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SETS", {"cifar10_lt_100": made_up})
    path = tmp_path / "tail.csv"
    words: list[str] = []
    places = (path, tmp_path, tmp_path, ("cifar10_lt_100",))
    run_tail_features(*places, methods=("la", "gda"), seeds=1, report=words.append)
    rows = run_tail_features(*places, methods=("la", "gda"), seeds=2, report=words.append)
    assert len(words) == 4
    assert [(row.method, row.seed) for row in rows] == [("la", 0), ("gda", 0), ("la", 1), ("gda", 1)]
    for row in rows:
        assert row.accuracy == pytest.approx((row.many + row.medium + row.few) / 3, abs=1e-4)  # one class of each
    text = tail_tables(rows)
    assert "**CIFAR-10, 100:1**" in text
    assert "(2)" in text
    assert "| logit adjustment |" in text


def test_the_choice_is_made_on_validation_data(tmp_path: Path) -> None:
    data = made_up(tmp_path, 0, tmp_path)

    class Pretended(Heads):
        def fit(self, row: str, choice: float):
            """One head is right on validation data and wrong on test data, the other the other way round."""

            def logits(features: np.ndarray) -> np.ndarray:
                is_test = len(features) == len(data.test.targets)
                targets = data.test.targets if is_test else data.validation.targets
                return np.eye(3)[(targets + (is_test == (choice == 1.0))) % 3]

            return logits

    found = judge(data, Pretended(data.train), TailHead("any", "any", (0.1, 1.0)), {}, seed=0)
    assert found.chosen == 1.0
    assert found.validation_accuracy == 1.0
    assert found.accuracy == 0.0


def test_a_fixed_training_part_is_fitted_once_for_all_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = []

    class Counting(Heads):
        def fit(self, row: str, choice: float):
            fitted.append(choice)
            return super().fit(row, choice)

    monkeypatch.setattr(run, "Heads", Counting)
    for fixed, number in ((True, 5), (False, 10)):
        data = replace(made_up(tmp_path, 0, tmp_path), fixed_training=fixed)
        monkeypatch.setattr(run, "SETS", {"cifar10_lt_100": lambda *_, data=data: data})
        fitted.clear()
        path = tmp_path / f"{fixed}.csv"
        run_tail_features(path, tmp_path, tmp_path, ("cifar10_lt_100",), ("gda",), seeds=2, report=lambda _: None)
        assert len(fitted) == number


def test_the_seed_draws_tail_and_validation_images_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = np.repeat(np.arange(10), 550)
    numbers = np.arange(5500, dtype=np.float32)[:, None]  # a feature that names the image
    everything = (FeaturePart(numbers, targets), FeaturePart(numbers[:10], targets[:10]))
    monkeypatch.setattr(sets, "_cifar10", lambda root, cache: everything)
    first, again, second = (cifar10_lt(tmp_path, seed, tmp_path, 100) for seed in (0, 0, 1))
    assert not set(first.train.features[:, 0]) & set(first.validation.features[:, 0])
    assert (np.bincount(first.validation.targets) == 50).all()
    assert np.bincount(first.train.targets).tolist() == [500, 299, 179, 107, 64, 38, 23, 13, 8, 5]
    assert np.array_equal(first.train.features, again.train.features)
    assert not np.array_equal(first.train.features, second.train.features)
    assert [len(classes) for classes in first.kinds().values()] == [3, 4, 3]


def test_principal_directions_are_those_of_the_training_part_largest_first(tmp_path: Path) -> None:
    data = made_up(tmp_path, 0, tmp_path)
    _, values, vectors = np.linalg.svd(data.train.features - data.train.features.mean(0), full_matrices=False)
    reduced = data.reduced(2)
    np.testing.assert_allclose(reduced.train.features.std(0), values[:2] / np.sqrt(len(data.train.targets)), rtol=1e-4)
    for row in range(2):  # up to their sign
        wanted = data.test.features @ vectors[row]
        along = np.abs(np.dot(reduced.test.features[:, row], wanted)) / np.linalg.norm(wanted) ** 2
        assert along == pytest.approx(1, abs=1e-3)
