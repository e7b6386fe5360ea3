"""The audit as a user calls it: what is planted is found, what is not planted is not."""

import csv
import json

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from icda.auditing import audit
from icda.auditing.result import COLUMNS
from support import shortcut_data


def blobs(counts, width=32, apart=3.0, seed=0):
    """Classes around random centres, `apart` times a random unit vector's length from the origin."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(len(counts), width))
    centres *= apart / np.linalg.norm(centres, axis=1, keepdims=True)
    y = np.repeat(np.arange(len(counts)), counts)
    return centres[y] + generator.normal(size=(len(y), width)), y


def birds(samples=2000, minority=0.06, seed=0):
    """A weak signal of the class and a strong one of a place, which agree but for a minority."""
    X, y, place = shortcut_data(samples, 1 - minority, 32, (8, 0.6), (8, 1.2), seed)
    return X, y, place != y


def flipped_digits(rate=0.2, seed=0):
    X, clean = load_digits(return_X_y=True)
    generator = np.random.default_rng(seed)
    flipped = generator.random(len(clean)) < rate
    return X, np.where(flipped, (clean + generator.integers(1, 10, len(clean))) % 10, clean), flipped


def names_of(found):
    return [finding.name for finding in found.findings]


@pytest.fixture(scope="module")
def small():
    X, y = blobs([40, 40, 40])
    return audit(X, np.array(["ant", "bee", "cat"])[y], sample_names=[f"<script>{i}</script>" for i in range(120)])


def test_a_planted_shortcut_is_found_with_its_minority_and_its_cost():
    X, y, sought = birds()
    found = audit(X, y, class_names=["landbird", "waterbird"])
    for label in (0, 1):
        assert roc_auc_score(sought[y == label], found.ties.tie[y == label]) > 0.95
        truth = (found.ties.predicted == y)[sought & (y == label)].mean()
        assert found.costs[label].accuracy_suspected == pytest.approx(truth, abs=0.15)
        assert found.costs[label].accuracy_rest > 0.95
    assert names_of(found) == ["shortcut"]
    assert "icda.RobustClassifier().fit(X, y)" in found.findings[0].advice
    assert found.treatment.name == "shortcut_prior"
    assert f"Expected: {found.treatment.effect}" in found.findings[0].advice
    assert found.worst in found.costs


def test_clean_balanced_data_raises_no_alarm():
    for seed in range(3):
        X, y = blobs([150] * 4, apart=5.0, seed=seed)
        found = audit(X, y)
        assert found.findings == []
        assert found.summary == "Nothing found that calls for more than plain training."


def test_planted_noise_is_found_and_not_taken_for_a_shortcut():
    X, y, flipped = flipped_digits()
    found = audit(X, y)
    assert names_of(found) == ["label_noise"]
    assert found.noise.rate == pytest.approx(0.2, abs=0.04)
    assert roc_auc_score(flipped, -found.ties.quality) > 0.99
    assert found.separability.auroc < 0.55
    assert flipped[found.ties.issue].mean() > 0.9


def test_overlapping_classes_are_called_neither_noise_nor_tie():
    generator = np.random.default_rng(3)
    y = generator.integers(0, 2, 2000)
    found = audit(generator.normal(size=(2000, 32)) + 0.2 * (2 * y[:, None] - 1), y)
    assert names_of(found) == ["overlap"]


def test_many_errors_are_reported_even_with_few_samples(tmp_path):
    generator = np.random.default_rng(1)
    y = generator.integers(0, 2, 80)
    X = generator.normal(size=(80, 4))
    X[:, 0] += 1.6 * y
    found = audit(X, y)
    assert found.separability is None
    assert (found.ties.predicted != y).mean() > 0.1
    assert found.verdicts["overlap"].answer == "yes"
    assert found.summary == "Found: overlap."
    assert "are predicted wrongly" in found.to_html(tmp_path / "audit.html").read_text()


def test_features_that_say_nothing_are_named_as_such():
    generator = np.random.default_rng(0)
    found = audit(generator.normal(size=(400, 16)), generator.integers(0, 2, 400))
    assert names_of(found) == ["uninformative_features"]


def test_a_long_tail_is_recognised_and_not_taken_for_ties_or_noise():
    X, y = blobs([400, 120, 40, 12], apart=5.0)
    found = audit(X, y, class_names=["a", "b", "c", "rare"])
    assert names_of(found) == ["long_tail"]
    assert found.imbalance.ratio == pytest.approx(400 / 12)
    assert found.imbalance.few == ["rare"]
    assert 'loss="la"' in found.findings[0].advice


def test_a_scarce_class_is_said_aloud():
    X, y = blobs([50, 50, 3])
    assert "Fewer samples than the 5 folds: 2 (3)." in audit(X, y).notes[0]


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["b", "a"]),
        np.array(["b", "a"], dtype=object),
        np.array([True, False]),
        np.array([7, -3], dtype=np.int8),
        np.array([1.0, 0.0]),
    ],
    ids=lambda labels: str(labels.dtype),
)
def test_labels_of_any_dtype_give_the_same_audit(labels):
    X, y = blobs([60, 60], apart=1.5)
    found, plain = audit(X, labels[y]), audit(X, 1 - y)
    assert found.class_names == [str(label) for label in np.sort(labels)]
    np.testing.assert_array_equal(found.ties.tie, plain.ties.tie)


def test_the_same_seed_gives_the_same_audit_and_another_seed_other_folds():
    X, y = blobs([60, 60], apart=1.5)
    first, second, other = audit(X, y, seed=1), audit(X, y, seed=1), audit(X, y, seed=2)
    np.testing.assert_array_equal(first.ties.tie, second.ties.tie)
    assert first.as_dict() | {"seconds": 0} == second.as_dict() | {"seconds": 0}
    assert not np.array_equal(first.ties.tie, other.ties.tie)


def test_shift_and_scale_of_features_change_nothing_and_half_precision_little():
    X, y = blobs([60, 60], apart=1.5)
    plain = audit(X, y).ties.tie
    np.testing.assert_allclose(audit(1000 * X + 50, y).ties.tie, plain, atol=1e-3)
    np.testing.assert_allclose(audit(X.astype(np.float16), y).ties.tie, plain, atol=0.1)


def test_a_memory_mapped_array_gives_the_same_audit(tmp_path):
    X, y = blobs([60, 60], apart=1.5)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_array_equal(audit(mapped, y).ties.tie, audit(X, y).ties.tie)


def test_rows_come_most_tied_first_with_every_column(small):
    rows = list(small.rows())
    assert all(tuple(row) == COLUMNS for row in rows)
    assert [row["tie"] for row in rows] == sorted(small.ties.tie.tolist(), reverse=True)
    first = rows[0]
    assert first["label"] == small.class_names[small.ties.label[first["index"]]]
    assert first["group"] == f"{first['label']}, {'tied' if first['suspected'] else 'rest'}"
    assert first["name"] == f"<script>{first['index']}</script>"


def test_json_comes_back_as_it_was(small, tmp_path):
    path = small.to_json(tmp_path / "new" / "audit.json")
    assert json.loads(path.read_text()) == json.loads(json.dumps(small.as_dict()))  # tuples come back as lists
    assert len(small.as_dict()["samples"]) == 120
    assert len(small.as_dict(top=7)["samples"]) == len(small.as_dict(top=7)["doubtful_labels"]) == 7


def test_csv_and_frame_hold_the_same_rows(small, tmp_path):
    with small.to_csv(tmp_path / "audit.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    frame = small.to_frame()
    assert list(frame.columns) == list(COLUMNS)
    assert [row["name"] for row in read] == frame["name"].tolist()
    np.testing.assert_allclose([float(row["tie"]) for row in read], frame["tie"])


def test_lone_surrogates_in_names_can_be_written(tmp_path):
    X, y = blobs([20, 20])
    found = audit(X, y, sample_names=["caf\udce9.jpg"] * 40)
    for write in (found.to_csv, found.to_json, found.to_html):
        assert write(tmp_path / "audit").stat().st_size > 0


def test_class_names_may_be_looked_up_by_number():
    X, y = blobs([20, 20])
    assert audit(X, 2 * y, class_names=["a", "b", "c"]).class_names == ["a", "c"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.full((40, 4), np.nan)}, "contains NaN"),
        ({"X": np.full((40, 4), np.inf)}, "contains infinity"),
        ({"X": np.zeros(40)}, "Expected 2D array"),
        ({"X": np.zeros((39, 4))}, "inconsistent numbers of samples"),
        ({"y": np.zeros(40)}, "at least 2 classes, got one class"),
        ({"y": np.r_[np.zeros(39), 1]}, "there is only one of 1.0"),
        ({"y": np.linspace(0, 1, 40)}, "Unknown label type"),
        ({"y": np.array([None, "a"] * 20, dtype=object)}, "mix types"),
        ({"folds": 1}, "folds must be a whole number of at least 2"),
        ({"repeats": 0}, "repeats"),
        ({"C": 0.0}, "C must be positive"),
        ({"class_names": ["only one"]}, "class_names has 1 names, but y has 2 classes"),
        ({"sample_names": ["a"]}, "expected 40, got 1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_input_is_refused(change, message):
    X, y = blobs([20, 20], width=4)
    given = {"X": X, "y": y, **change}
    with pytest.raises(ValueError, match=message):
        audit(given.pop("X"), given.pop("y"), **given)


def test_names_that_are_formulas_are_text_in_the_csv(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.array(["=cmd|' /C calc'!A0", "-2+3"] * 30)
    features = rng.normal(size=(60, 4)) + (labels == "-2+3")[:, None]
    found = audit(features, labels, sample_names=[f"@{place}" for place in range(60)])
    path = found.to_csv(tmp_path / "audit.csv")
    cells = [cell for row in csv.reader(path.read_text().splitlines()) for cell in row]
    assert "'-2+3" in cells
    assert not [cell for cell in cells if cell[:1] in "=+-@" and not is_number(cell)]


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_the_file_grows_with_the_classes_and_not_with_their_square(tmp_path, monkeypatch):
    found = audit(*blobs([6] * 20, width=8))
    whole = json.loads(found.to_json(tmp_path / "whole.json").read_text())
    assert np.array(whole["ties"]["matrix"]).shape == (20, 20)
    monkeypatch.setattr("icda.auditing.result.WHOLE_TABLE", 10)
    kept = json.loads(found.to_json(tmp_path / "large.json").read_text())
    assert kept["ties"]["matrix"] is kept["label_noise"]["joint"] is None
    for part, name, values in (("ties", "matrix", found.matrix), ("label_noise", "joint", found.noise.joint)):
        largest = kept[part][f"largest_in_{name}"]
        assert len(largest) == 20 * 10
        for row, column, value in largest:
            assert value == values[row, column]
            assert (np.delete(values[row], row) > value).sum() < 10
