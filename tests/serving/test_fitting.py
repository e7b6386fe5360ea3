"""`icda fit` as a function: the whole way from data to a loaded model, for every kind of data."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import icda
from icda.data.embedding import embed, load_features
from icda.data.embedding.samples import Reads, Samples
from icda.data.own.reading import read_samples
from icda.errors import ExistingFileError, InputError
from icda.heads.blocks import BlockRows
from icda.models.encoders import create_encoder
from icda.serving import predict_data
from icda.serving.fit_data import Asked, read_fit_data
from icda.serving.fitting import check_out, fit_model
from icda.serving.head_fit import fit_rows
from icda.serving.trial import cross_validate, judge

LABELS = Asked(labels="species")


def same_to_the_bit(model, estimator, X):
    assert np.array_equal(model.predict_proba(X), estimator.predict_proba(X))
    assert np.array_equal(model.predict(X), estimator.predict(X))


def test_images_the_loaded_model_answers_as_the_estimator_does(image_model):
    folder, _ = image_model
    features = load_features(folder / "features.npz")
    estimator = icda.RobustClassifier(random_state=0).fit(features.features, features.y)
    model = icda.load(folder)
    same_to_the_bit(model, estimator, features.features)
    assert model.classes.tolist() == ["blue", "red"]
    paths = [folder.parent / "photos" / name for name in features.id]
    assert np.allclose(model.embed(paths), features.features, atol=1e-5)
    assert model.predict(paths).tolist() == features.y.tolist()


def test_texts_are_read_by_their_column(made, tmp_path):
    path = made.write_texts(tmp_path / "texts.csv")
    _, data = made.fit_to(path, tmp_path / "model")
    model = icda.load(tmp_path / "model")
    new = ["lovely great superb film, number 3", "awful dull poor film, number 4"]
    assert model.predict(new).tolist() == ["good", "bad"]
    same_to_the_bit(model, icda.RobustClassifier().fit(data.features, data.labels), data.features)
    found = predict_data(model, path)
    assert found.id_name == "row"
    assert found.labels.tolist() == data.labels.tolist()


def test_a_table_of_numbers_keeps_its_columns(made, tmp_path):
    X, y = made.numbers()
    made.fit_to(made.write_numbers(tmp_path / "table.csv", X, y), tmp_path / "model", LABELS)
    model = icda.load(tmp_path / "model")
    assert model.reads.columns == tuple(f"f{k}" for k in range(6))  # not the one that numbers the rows
    same_to_the_bit(model, icda.RobustClassifier().fit(X, np.array(made.classes)[y]), X)
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(6)])[[f"f{k}" for k in (3, 1, 0, 2, 5, 4)]]
    assert np.array_equal(model.predict_proba(frame), model.predict_proba(X))  # by name, in whatever order


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_feature_files_are_fitted_as_they_are(kind, made, tmp_path):
    X, y = made.numbers()
    X = X.astype(np.float32)
    path = made.write_features(tmp_path / f"features.{kind}", X, y=y)
    made.fit_to(path, tmp_path / "model")
    model = icda.load(tmp_path / "model")
    estimator = icda.RobustClassifier().fit(X, y)
    same_to_the_bit(model, estimator, X)
    assert model.classes.dtype.kind == "i"  # numbers stay numbers
    assert np.array_equal(predict_data(model, path).probabilities, estimator.predict_proba(X))


@pytest.mark.parametrize("method", ["ce", "logit_adjustment", "icda"])
def test_a_named_loss_is_fitted_to_standardised_features(method, made):
    X, y = made.numbers()
    head = fit_rows(BlockRows.of_arrays(X, y), {"logit_adjustment": "la"}.get(method, method))
    scaled = (X - X.mean(0)) / X.std(0)
    alone = icda.ICDAClassifier({"logit_adjustment": "la"}.get(method, method), C=head.C).fit(scaled, y)
    found = X @ head.coef.T + head.intercept
    assert np.allclose(found - found.mean(1, keepdims=True), alone.decision_function(scaled), atol=1e-2)


def test_a_shortcut_is_found_treated_and_read_off_new_samples(shortcut_model, made):
    folder, fitted = shortcut_model
    assert fitted.audit.verdicts["shortcut"].answer == "yes"
    model = icda.load(folder)
    X, _, attribute = made.shortcut(seed=1)
    answers = model.answer_features(X)
    assert (answers.points_to == attribute).mean() > 0.95
    trial = fitted.trial
    assert trial.after.worst_group.accuracy > trial.before.worst_group.accuracy + 0.2
    assert "shortcut points to" in trial.after.worst_group.name
    assert "the same treatment was chosen" in trial.held_out


def test_the_same_seed_gives_the_same_bytes(made, tmp_path):
    X, y = made.numbers()
    path = made.write_numbers(tmp_path / "table.csv", X, y)
    for name in ("one", "two"):
        made.fit_to(path, tmp_path / name, LABELS)
    one, two = (
        {name: (tmp_path / folder / name).read_bytes() for name in ("model.json", "weights.safetensors", "audit.csv")}
        for folder in ("one", "two")
    )
    assert one == two


def test_the_trial_is_a_cross_validation_written_naively():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(50, 3))
    y = np.array(["a", "b"])[(np.arange(50) % 5 == 0).astype(int)]
    seen = []

    def constant(known, labels, new, _):
        seen.append((len(known), len(new), sorted(labels).count("b")))
        return np.full(len(new), "a")

    def perfect(known, labels, new, _):
        return np.array([y[(row == X).all(1)][0] for row in new])

    trial = cross_validate(constant, perfect, X, y, None, 0)
    assert trial.before.accuracy == 0.8
    assert trial.before.worst_class.accuracy == 0
    assert trial.after.accuracy == trial.after.worst_class.accuracy == 1
    assert seen == [(40, 10, 8)] * 5
    assert trial.before.worst_group is None


def test_groups_of_a_few_samples_are_not_called_the_worst():
    y = np.array(["a"] * 20)
    groups = ["small"] * 4 + ["large"] * 16
    predicted = np.where(np.array(groups) == "small", "b", "a")
    assert judge(predicted, y, groups).worst_group.name == "large"


def test_a_test_split_is_held_out_and_judged(made, tmp_path):
    X, y = made.numbers()
    split = np.where(np.arange(240) < 60, "test", "train")
    np.savez(tmp_path / "f.npz", X=X, y=y, split=split)
    fitted, _ = made.fit_to(tmp_path / "f.npz", tmp_path / "model")
    estimator = icda.RobustClassifier().fit(X[60:], y[60:])
    same_to_the_bit(icda.load(tmp_path / "model"), estimator, X)
    assert fitted.trial.samples == 60
    assert fitted.trial.after.accuracy == pytest.approx(estimator.score(X[:60], y[:60]))
    assert len(fitted.audit) == 180


def test_a_split_that_is_not_understood_is_refused():
    def test_rows(splits):
        return Samples(Reads("features"), range(len(splits)), splits=np.array(splits)).test

    with pytest.raises(InputError, match="split 'fold3' is not understood"):
        test_rows(["train", "fold3"])
    with pytest.raises(InputError, match="'0' is not understood"):  # without a 2 it may mean anything
        test_rows([0, 1, 0])
    assert test_rows(["train", "train"]) is None
    assert test_rows([0, 1, 2]).tolist() == [False, False, True]


def test_a_folder_with_content_is_refused_unless_it_is_an_interrupted_fit(tmp_path):
    check_out(tmp_path / "new", overwrite=False)
    (tmp_path / "features.npz.part").mkdir()
    check_out(tmp_path, overwrite=False)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ExistingFileError, match="is not empty"):
        check_out(tmp_path, overwrite=False)
    check_out(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    with pytest.raises(InputError, match="which is a file"):
        check_out(tmp_path / "thesis.tex", overwrite=True)


def test_the_page_shows_suspects_beside_typical_samples(made, tmp_path):
    """Texts whose labels were exchanged stand beside typical ones."""
    path = made.write_texts(tmp_path / "texts.csv")
    lines = path.read_text().splitlines()
    lines[1:5] = [
        line.rpartition(",")[0] + "," + {"good": "bad", "bad": "good"}[line.rpartition(",")[2]] for line in lines[1:5]
    ]
    path.write_text("\n".join(lines))
    made.fit_to(path, tmp_path / "model")
    page = (tmp_path / "model" / "page.html").read_text(encoding="utf-8")
    assert "Suspects to look at" in page
    assert "Typical good" in page
    assert '<blockquote class="text">' in page


def test_features_of_one_dimension_are_refused(made, tmp_path):
    np.savez(tmp_path / "f.npz", X=np.zeros(4), y=np.array([0, 1, 0, 1]))
    with pytest.raises(InputError, match="expected \\(N, A\\)"):
        made.fit_to(tmp_path / "f.npz", tmp_path / "model")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_named_by_its_place(value, made, tmp_path):
    X, y = made.numbers(30)
    X[[4, 9], 2] = value
    np.savez(tmp_path / "f.npz", X=X, y=y)
    with pytest.raises(InputError, match=r"2 of 30 rows .* the first in row 4, column 2 \(counted from 0\)"):
        read_fit_data(tmp_path / "f.npz", Asked(), tmp_path / "model")
    made.write_numbers(tmp_path / "f.csv", X, y)
    with pytest.raises(InputError, match=r"the first in row 4 \(counted from 0\), column 'f2'"):
        read_fit_data(tmp_path / "f.csv", LABELS, tmp_path / "model")


def test_training_samples_of_one_class_are_refused(tmp_path):
    y, split = np.array(["a", "a", "b", "b"]), np.array(["train", "train", "test", "test"])
    np.savez(tmp_path / "f.npz", X=np.eye(4), y=y, split=split)
    with pytest.raises(InputError, match="all training samples are of one class, a; a classifier needs at least 2"):
        read_fit_data(tmp_path / "f.npz", Asked(), tmp_path / "model")
    np.savez(tmp_path / "g.npz", X=np.eye(4), y=np.full(4, "a"))
    with pytest.raises(InputError, match="all samples are of one class, a;"):
        read_fit_data(tmp_path / "g.npz", Asked(), tmp_path / "model")


@pytest.mark.parametrize("name", ["f.npz", "f.npy"])
def test_a_text_by_the_name_of_an_array_is_no_reason_to_allow_pickles(name, tmp_path):
    (tmp_path / name).write_text("these are words")
    with pytest.raises(InputError, match=f"is no {Path(name).suffix} file") as caught:
        read_fit_data(tmp_path / name, Asked(labels="y" if name == "f.npz" else __file__), tmp_path / "model")
    assert "pickle" not in str(caught.value)


def test_an_unknown_method_is_refused_before_any_work(made):
    with pytest.raises(InputError, match="did you mean 'icda'"):
        fit_model(None, "icdaa")


def test_images_are_read_at_the_size_of_the_embedded_file(made, tmp_path):
    """At the encoder's own size the features, and with them the predictions, would be others."""
    photos = made.write_images(tmp_path / "photos", 24)
    samples = read_samples(photos)
    embed(samples, create_encoder(None, "image", 64), tmp_path / "f.npz")
    made.fit_to(tmp_path / "f.npz", tmp_path / "model")
    model, features = icda.load(tmp_path / "model"), load_features(tmp_path / "f.npz")
    assert (model.reads.kind, model.reads.image_size) == ("image", 64)
    assert np.allclose(model.embed(list(samples.inputs)), features.features, atol=1e-5)
    with np.load(tmp_path / "f.npz") as file:
        arrays = {name: file[name] for name in file.files}
    assert arrays.pop("image_size") == 64
    np.savez(tmp_path / "other.npz", **arrays, image_size=32)
    with pytest.raises(InputError, match="embed with --image-size 64"):
        predict_data(model, tmp_path / "other.npz")
    np.savez(tmp_path / "older.npz", **arrays)
    made.fit_to(tmp_path / "older.npz", tmp_path / "older")
    with pytest.raises(InputError, match="the model reads 1280 features"):
        predict_data(icda.load(tmp_path / "older"), photos)
