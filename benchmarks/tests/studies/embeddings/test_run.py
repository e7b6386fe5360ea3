from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from icda_bench.rows import read_table, write_rows
from icda_bench.studies.embeddings import methods, run, sets
from icda_bench.studies.embeddings.methods import BY_ACCURACY, BY_CLASS, ROWS, RULES, Bench
from icda_bench.studies.embeddings.run import run_cells
from icda_bench.studies.embeddings.sets import BiasedSet
from icda_bench.studies.features import FeaturePart


def biased_part(size, agreement, seed):
    generator = np.random.default_rng(seed)
    targets = np.arange(size) % 2
    attribute = np.where(generator.random(size) < agreement, targets, 1 - targets)
    features = generator.normal(size=(size, 8)).astype(np.float32)
    features[:, 0] += 1.4 * (2 * targets - 1)
    features[:, 1] += 2.5 * (2 * attribute - 1)
    return FeaturePart(features, targets, {"place": attribute})


def small_set(root, seed, cache):
    train, validation, test = biased_part(600, 0.95, 0), biased_part(200, 0.5, 1), biased_part(1000, 0.5, 2)
    return BiasedSet(train, validation, test, validation, (0.01, 0.1))


@pytest.fixture(autouse=True)
def only_the_small_set(monkeypatch):
    monkeypatch.setitem(sets.SETS, "small", small_set)


def worst(method):
    return run_cells(("small", 0, [method], Path(), Path()))[0]["worst_group_accuracy"]


def test_guessed_groups_come_close_to_true_ones():
    plain, guessed, true = worst("ce"), worst("ce_contrast"), worst("ce_groups")
    assert guessed > plain + 0.05
    assert guessed > true - 0.05


def test_guesses_of_the_bench_are_those_of_the_estimator():
    from icda import ICDAClassifier

    bench = Bench(small_set(Path(), 0, Path()), seed=3)
    row = next(row for row in ROWS if row.name == "ce_contrast")
    found = bench._fit_training(row, None, 0.1).model
    train = bench.data.train
    own = ICDAClassifier(loss="ce", C=0.1, balance="contrast", random_state=3).fit(train.features, train.targets)
    np.testing.assert_allclose(found.coef_, own.coef_, atol=1e-5)


def test_rows_that_are_told_nothing_never_read_attributes():
    class Forbidden(dict):
        def __getitem__(self, key: str) -> np.ndarray:
            raise AssertionError(f"read attribute {key}")

    data = small_set(Path(), 0, Path())
    train, validation = (replace(part, attributes=Forbidden(place=None)) for part in (data.train, data.validation))
    bench = Bench(replace(data, train=train, validation=validation, inverse_decays=(0.1,)), seed=0)
    for row in (row for row in ROWS if row.knows == "labels"):
        bench.fit(row, None)


def test_every_row_gives_a_cell():
    cells = run_cells(("small", 0, [row.name for row in ROWS], Path(), Path()))
    expected = [(row.name, rule) for row in ROWS for rule in RULES[row.knows]]
    assert [(cell["method"], cell["selection"]) for cell in cells] == expected
    assert all(0 < cell["worst_group_accuracy"] <= cell["accuracy"] <= 1 for cell in cells)


def test_labels_alone_choose_C_by_accuracy_and_by_the_worst_class(monkeypatch):
    data = small_set(Path(), 0, Path())
    validation = data.validation
    zeros, ones = (np.flatnonzero(validation.targets == label) for label in (0, 1))

    class Answers:
        """Right for a given share of each class: the more accurate one is wrong about half of class 1."""

        def __init__(self, C: float, **options: object) -> None:
            self.shares = (1.0, 0.5) if C == 0.01 else (0.7, 0.7)

        def fit(self, *arguments: object, **options: object) -> "Answers":
            return self

        def predict(self, features: np.ndarray) -> np.ndarray:
            answers = validation.targets.copy()
            for rows, share in zip((zeros, ones), self.shares, strict=True):
                wrong = rows[round(share * len(rows)) :]
                answers[wrong] = 1 - answers[wrong]
            return answers

    monkeypatch.setattr(methods, "ICDAClassifier", Answers)
    chosen = Bench(data, seed=0).fit(ROWS[0], None)
    assert {rule: fitted.C for rule, fitted in chosen.items()} == {BY_ACCURACY: 0.01, BY_CLASS: 0.1}
    assert chosen[BY_ACCURACY].scores[BY_ACCURACY] == pytest.approx(0.75)
    assert chosen[BY_CLASS].scores[BY_CLASS] == pytest.approx(0.7)


def test_a_table_with_one_rule_gets_the_other_and_keeps_what_it_had(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    earlier = {**run_cells(("small", 0, ["ce"], Path(), Path()))[0], "accuracy": 0.123, "commit": "earlier"}
    write_rows(path, [earlier])
    options = run.Arguments(("small",), ("ce",), seeds=1, jobs=1, out=path)
    cells = run.run_table(options)
    assert [cell["selection"] for cell in cells] == [BY_ACCURACY, BY_CLASS]
    assert (cells[0]["accuracy"], cells[0]["commit"]) == ("0.123", "earlier")
    assert [row["selection"] for row in read_table(path)] == [BY_ACCURACY, BY_CLASS]
    monkeypatch.setattr(run, "run_cells", lambda *_: pytest.fail("ran a finished cell"))
    assert run.run_table(options) == read_table(path)
