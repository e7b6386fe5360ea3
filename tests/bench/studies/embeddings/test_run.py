from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from icda.bench.studies.embeddings import run, sets
from icda.bench.studies.embeddings.methods import ROWS, Bench
from icda.bench.studies.embeddings.run import read_cells, run_cells, write_cells
from icda.bench.studies.embeddings.sets import FeatureSet, Part


def biased_part(size: int, agreement: float, seed: int) -> Part:
    generator = np.random.default_rng(seed)
    targets = np.arange(size) % 2
    attribute = np.where(generator.random(size) < agreement, targets, 1 - targets)
    features = generator.normal(size=(size, 8)).astype(np.float32)
    features[:, 0] += 1.4 * (2 * targets - 1)
    features[:, 1] += 2.5 * (2 * attribute - 1)
    return Part(features, targets, {"place": attribute})


def small_set(root: Path, seed: int, cache: Path) -> FeatureSet:
    train, validation, test = biased_part(600, 0.95, 0), biased_part(200, 0.5, 1), biased_part(1000, 0.5, 2)
    return FeatureSet("small", train, validation, test, validation, (0.01, 0.1))


@pytest.fixture(autouse=True)
def only_the_small_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sets.SETS, "small", small_set)


def worst(method: str) -> float:
    (cell,) = run_cells("small", 0, [method], Path(), Path())
    return cell.worst_group_accuracy


def test_guessed_groups_come_close_to_true_ones() -> None:
    plain, guessed, true = worst("ce"), worst("ce_contrast"), worst("ce_groups")
    assert guessed > plain + 0.05
    assert guessed > true - 0.05


def test_guesses_of_the_bench_are_those_of_the_estimator() -> None:
    from icda import ICDAClassifier

    bench = Bench(small_set(Path(), 0, Path()), seed=3)
    row = next(row for row in ROWS if row.name == "ce_contrast")
    found = bench._fit_training(row, None, 0.1).model
    train = bench.data.train
    own = ICDAClassifier(loss="ce", C=0.1, balance="contrast", random_state=3).fit(train.features, train.targets)
    np.testing.assert_allclose(found.coef_, own.coef_, atol=1e-5)


def test_rows_that_are_told_nothing_never_read_attributes() -> None:
    class Forbidden(dict):
        def __getitem__(self, key: str) -> np.ndarray:
            raise AssertionError(f"read attribute {key}")

    data = small_set(Path(), 0, Path())
    blind = FeatureSet(
        "small",
        Part(data.train.features, data.train.targets, Forbidden(place=None)),
        Part(data.validation.features, data.validation.targets, Forbidden(place=None)),
        data.test,
        data.metadata,
        (0.1,),
    )
    bench = Bench(blind, seed=0)
    for row in (row for row in ROWS if row.knows == "labels"):
        bench.fit(row, None)


def test_every_row_gives_a_cell() -> None:
    cells = run_cells("small", 0, [row.name for row in ROWS], Path(), Path())
    assert [cell.method for cell in cells] == [row.name for row in ROWS]
    assert all(0 < cell.worst_group_accuracy <= cell.accuracy <= 1 for cell in cells)


def test_cells_survive_the_file(tmp_path: Path) -> None:
    cells = run_cells("small", 0, ["ce"], Path(), Path())
    write_cells(tmp_path / "a.csv", cells)
    assert read_cells(tmp_path / "a.csv") == cells


def test_what_is_done_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    write_cells(path, run_cells("small", 0, ["ce"], Path(), Path()))
    before = path.read_bytes()

    def never(*arguments: object) -> None:
        raise AssertionError("ran a finished cell")

    monkeypatch.setattr(run, "run_cells", never)
    run.run_table(path, Path(), Path(), sets=["small"], methods=["ce"], seeds=1, report=lambda text: None)
    assert path.read_bytes() == before
