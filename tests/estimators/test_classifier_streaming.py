"""Fits to data that is not in memory: mapped files, batches, Parquet."""

import io
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.utils import check_array

import icda.estimators.streaming as streaming
import icda.heads.rows as rows_module
from icda.data.embedding.features import map_features, write_arrays
from icda.estimators.classifier import ICDAClassifier

LOSSES = ("ce", "la", "isda", "risda", "icda")


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    return (data.data / 16)[order].astype(np.float32), names[data.target[order]]


@pytest.fixture
def everything_is_large(monkeypatch):
    monkeypatch.setattr(rows_module, "IN_MEMORY_BYTES", 1)
    monkeypatch.setattr(rows_module, "CHUNK_BYTES", 100 * 64 * 4)


def mapped(folder, X):
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_mapped_file_gives_the_head_of_the_array_in_memory(loss, dtype, digits, tmp_path, everything_is_large):
    X, y = digits[0].astype(dtype), digits[1]
    model = ICDAClassifier(loss, C=0.5, max_iter=5, tol=1e-12)
    weights = np.random.default_rng(1).integers(0, 3, len(y))
    with pytest.warns(match="stopped at max_iter"):
        in_memory = clone(model).fit(X, y, sample_weight=weights)
    with pytest.warns(match="stopped at max_iter"):
        from_disk = clone(model).fit(mapped(tmp_path, X), y, sample_weight=weights)
    atol = 1e-10 if dtype == "f8" else 2e-4  # steps of L-BFGS carry float32's rounding on
    np.testing.assert_allclose(from_disk.coef_, in_memory.coef_, atol=atol)
    assert from_disk.coef_.dtype == X.dtype
    np.testing.assert_allclose(from_disk.predict_proba(mapped(tmp_path, X)), in_memory.predict_proba(X), atol=10 * atol)
    assert (from_disk.predict(mapped(tmp_path, X)) == in_memory.predict(X)).mean() > 0.999


@pytest.mark.parametrize("balance", ["class", "group", "contrast", "strength"])
def test_balance_reads_mapped_files_too(balance, digits, tmp_path, everything_is_large):
    X, y = digits[0][:300].astype(np.float64), digits[1][:300]
    groups = np.arange(300) % 2
    model = ICDAClassifier("ce", C=0.1, balance=balance)
    in_memory, from_disk = (clone(model).fit(part, y, groups=groups) for part in (X, mapped(tmp_path, X)))
    np.testing.assert_allclose(from_disk.coef_, in_memory.coef_, atol=1e-6)


def test_a_mapped_file_is_not_read_as_a_whole(digits, tmp_path, everything_is_large, monkeypatch):
    X, y = digits

    def guarded(array, *arguments, **settings):
        assert np.ndim(array) == 1, "the features were checked at once"
        return check_array(array, *arguments, **settings)

    monkeypatch.setattr("sklearn.utils.validation.check_array", guarded)
    ICDAClassifier("ce", max_iter=3, tol=1.0).fit(mapped(tmp_path, X), y).predict(mapped(tmp_path, X))


@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "Input X contains NaN"), (np.inf, "Input X contains infinity")]
)
def test_values_that_are_not_finite_are_found_in_the_last_chunk(value, message, digits, tmp_path, everything_is_large):
    X, y = digits[0].copy(), digits[1]
    good = ICDAClassifier("ce").fit(X, y)
    X[-1, -1] = value
    with pytest.raises(ValueError, match=message):
        ICDAClassifier().fit(mapped(tmp_path, X), y)
    with pytest.raises(ValueError, match=message):
        good.predict(mapped(tmp_path, X))


def test_wrong_lengths_and_widths_of_mapped_files_are_scikit_learns_errors(digits, tmp_path, everything_is_large):
    X, y = digits
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        ICDAClassifier().fit(mapped(tmp_path, X), y[:-1])
    model = ICDAClassifier("ce").fit(mapped(tmp_path, X), y)
    assert model.n_features_in_ == 64
    with pytest.raises(ValueError, match="X has 63 features, but ICDAClassifier is expecting 64 features as input"):
        model.predict(mapped(tmp_path, X[:, :-1]))


def test_the_features_file_of_icda_embed_is_fitted_where_it_lies(digits, tmp_path, everything_is_large):
    X, y = digits
    known = {
        "id": np.arange(len(y)),
        "skipped": np.arange(0),
        "encoder": np.array("x"),
        "encoder_version": np.array("1"),
    }
    write_arrays(tmp_path / "features.npz", {**known, "y": y}, [X], X.shape)
    found = map_features(tmp_path / "features.npz")
    model = ICDAClassifier("ce").fit(found.features, found.y)
    np.testing.assert_allclose(model.coef_, ICDAClassifier("ce").fit(X, y).coef_, atol=1e-4)


@pytest.mark.parametrize("loss", LOSSES)
def test_batches_teach_every_loss(loss, digits):
    X, y = digits
    model = ICDAClassifier(loss)
    for _ in range(5):
        for start in range(0, 1400, 200):
            model.partial_fit(X[start : start + 200], y[start : start + 200], classes=np.unique(y))
    assert model.score(X[1400:], y[1400:]) > 0.93
    again = pickle.loads(pickle.dumps(model))
    for other in (model, again):
        other.partial_fit(X[:200], y[:200])
    np.testing.assert_array_equal(model.coef_, again.coef_)


def test_fit_begins_anew_and_partial_fit_goes_on(digits):
    X, y = digits
    model = ICDAClassifier("ce").partial_fit(X[:500], y[:500], classes=np.unique(y))
    np.testing.assert_array_equal(model.fit(X, y).coef_, ICDAClassifier("ce").fit(X, y).coef_)
    before = model.score(X, y)
    assert model.partial_fit(X[:100], y[:100]).score(X, y) > before - 0.1
    assert not hasattr(clone(model), "_online")


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ({}, {}, "classes must be passed on the first call to partial_fit"),
        ({}, {"classes": ["one"]}, "needs at least 2 classes"),
        ({}, {"classes": ["one", "two"]}, "which is not among the classes of the first call"),
        ({"balance": "contrast"}, {"classes": "all"}, "use fit, which takes mapped files too"),
        ({"balance": "group"}, {"classes": "all"}, "knows balance=None and balance='class'"),
        ({"strength": "cross_fitted"}, {"classes": "all"}, "strength='angle'"),
    ],
)
def test_what_partial_fit_cannot_do_is_said(settings, arguments, message, digits):
    X, y = digits
    if arguments.get("classes") == "all":
        arguments = {"classes": np.unique(y)}
    with pytest.raises(ValueError, match=message):
        ICDAClassifier(**settings).partial_fit(X, y, **arguments)


def test_settings_must_not_change_between_batches(digits):
    X, y = digits
    model = ICDAClassifier("ce").partial_fit(X, y, classes=np.unique(y))
    with pytest.raises(ValueError, match="must stay as they were at the first call"):
        model.set_params(C=2.0).partial_fit(X, y)
    with pytest.raises(ValueError, match="is not the same as on last call to partial_fit"):
        model.set_params(C=1.0).partial_fit(X, y, classes=["a", "b"])


@pytest.fixture
def parquet(digits, tmp_path):
    X, y = digits
    folder = tmp_path / "parts"
    folder.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(y)), 3)):
        table = {
            "embedding": pa.array(X[rows].tolist(), pa.list_(pa.float32())),
            "label": y[rows],
            "weight": (rows % 3).astype(float),
            "place": rows % 2,
        }
        pq.write_table(pa.table(table), folder / f"{number}.parquet", row_group_size=200)
    return folder


@pytest.mark.parametrize("large", [False, True])
def test_parquet_gives_the_head_of_the_array_in_memory(large, parquet, digits, tmp_path, monkeypatch):
    if large:
        monkeypatch.setattr(rows_module, "IN_MEMORY_BYTES", 1)
    X, y = digits
    number = np.arange(len(y))
    model = ICDAClassifier("icda", C=0.1, balance="group", tol=1e-5, max_iter=1000)
    wanted = clone(model).fit(X, y, number % 3, number % 2)
    folder = tmp_path / "spool"
    folder.mkdir()
    columns = {"features": "embedding", "target": "label", "sample_weight": "weight", "groups": "place"}
    found = clone(model).fit_parquet(parquet, **columns, tempdir=folder)
    # Rows on disk are added up in another order: in single precision optima agree to about this.
    np.testing.assert_allclose(found.coef_, wanted.coef_, atol=1e-3 if large else 1e-5)
    assert found.classes_.tolist() == np.unique(y).tolist()
    assert list(folder.iterdir()) == []


def test_epochs_learn_from_parquet_without_a_copy(parquet, digits, monkeypatch):
    monkeypatch.setattr(streaming, "spooled", None)
    X, y = digits
    settings = {"features": "embedding", "target": "label", "epochs": 5, "batch_size": 256}
    model = ICDAClassifier("icda").fit(X[:50], y[:50])  # forgotten
    model.fit_parquet(parquet, **settings)
    assert model.score(X, y) > 0.95
    np.testing.assert_array_equal(model.coef_, ICDAClassifier("icda").fit_parquet(parquet, **settings).coef_)
    with pytest.raises(ValueError, match="epochs must be at least 1"):
        model.fit_parquet(parquet, features="embedding", target="label", epochs=0)


@pytest.mark.parametrize("shown", [False, True])
def test_the_bar_shows_where_it_is_wanted_and_there_is_a_terminal(shown, parquet, monkeypatch):
    page = io.StringIO()
    monkeypatch.setattr(streaming, "make_console", lambda **_: Console(file=page, force_terminal=True, width=100))
    ICDAClassifier("ce").fit_parquet(parquet, features="embedding", target="label", progress=shown)
    assert ("1797/1797" in page.getvalue()) == shown
