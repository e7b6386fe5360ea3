"""Files of predictions: one row per input, from every kind of file."""

import csv

import numpy as np
import pandas as pd
import pytest

import icda
from icda.cli.main import main
from icda.cli.predict import describe
from icda.data.embedding import encode_rows
from icda.data.embedding.samples import Reads
from icda.data.own.reading import read_samples
from icda.errors import InputError, MissingFileError, UnreadableError
from icda.serving import predict_data
from icda.serving.head import HeadModel, ShortcutReader


@pytest.fixture
def head():
    """Three features, three classes: the largest feature wins; the shortcut reads the first one."""
    reader = ShortcutReader(np.array([[1.0, 0, 0], [-1.0, 0, 0]]), np.zeros(2), np.array([2, 0]))
    reads = Reads("features", 3, columns=("a", "b", "c"))
    return HeadModel(np.array(["=SUM(A1)", "bee", "-1"]), np.eye(3), np.zeros(3), reads, reader)


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_row_holds_label_probabilities_and_whether_the_shortcut_disagrees(head, tmp_path):
    pd.DataFrame({"c": [0.0, 2.0], "a": [3.0, -1.0], "b": [0.0, 1.0], "unused": ["x", "y"]}).to_csv(
        tmp_path / "new.csv", index=False
    )
    found = predict_data(head, tmp_path / "new.csv")
    rows = read_csv(found.to_csv(tmp_path / "p.csv"))
    assert list(rows[0]) == ["row", "label", "p_=SUM(A1)", "p_bee", "p_-1", "shortcut_points_to", "disagree"]
    assert [row["label"] for row in rows] == ["'=SUM(A1)", "-1"]  # a formula is made text, a number stays one
    assert [row["shortcut_points_to"] for row in rows] == ["-1", "'=SUM(A1)"]
    assert [row["disagree"] for row in rows] == ["yes", "yes"]
    exponentials = np.exp([3.0, 0.0, 0.0])
    expected = exponentials / exponentials.sum()
    assert np.allclose([float(rows[0][name]) for name in ("p_=SUM(A1)", "p_bee", "p_-1")], expected, atol=1e-12)
    assert found.disagreements == 2


def test_without_a_conditional_prior_there_is_nothing_to_disagree(head, tmp_path):
    np.save(tmp_path / "new.npy", np.eye(3))
    head.shortcut = None
    found = predict_data(head, tmp_path / "new.npy")
    assert found.columns() == ["row", "label", "p_=SUM(A1)", "p_bee", "p_-1"]
    assert found.disagreements is None


def test_images_in_nested_and_flat_folders_are_embedded_as_in_the_fit(image_model, made, tmp_path):
    new = made.write_images(tmp_path / "new", 9, seed=5, classes=False)
    model = icda.load(image_model[0])
    found = predict_data(model, new)
    samples = read_samples(new, unlabelled=True)
    features = encode_rows(range(9), samples, model.encoder, 32, False).features
    logits = features @ image_model[1].model.coef.T + image_model[1].model.intercept
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    assert np.allclose(found.probabilities, shifted / shifted.sum(1, keepdims=True), atol=1e-6)
    assert found.ids == [str(name) for name in samples.ids]
    assert found.id_name == "path"
    assert any("/" in name for name in found.ids)
    assert any("/" not in name for name in found.ids)
    one = predict_data(model, new / found.ids[0])
    assert np.allclose(one.probabilities, found.probabilities[:1], atol=1e-6)


def test_unreadable_images_are_all_named_or_left_without_a_prediction(image_model, made, tmp_path):
    new = made.write_images(tmp_path / "new", 4, classes=False)
    for name in ("broken.png", "empty.jpg"):
        (new / name).write_bytes(b"no image")
    model = icda.load(image_model[0])
    with pytest.raises(UnreadableError, match="2 file") as caught:
        predict_data(model, new)
    assert "broken.png" in str(caught.value)
    assert "--skip-unreadable" in str(caught.value)
    assert "--resume" not in str(caught.value)
    found = predict_data(model, new, skip_unreadable=True)
    assert sorted(found.skipped) == ["broken.png", "empty.jpg"]
    rows = {row["path"]: row for row in read_csv(found.to_csv(tmp_path / "p.csv"))}
    assert rows["broken.png"]["label"] == rows["broken.png"]["p_red"] == ""
    assert len(rows) == 6
    assert describe(found, tmp_path / "p.csv").splitlines()[0].endswith("p.csv: 4 predictions (blue 2, red 2)")
    for path in new.rglob("*.png"):
        path.write_bytes(b"gone")
    with pytest.raises(InputError, match="none of the 6 inputs"):
        predict_data(model, new, skip_unreadable=True)


def test_a_table_without_the_column_names_the_option_of_predict(tmp_path):
    (tmp_path / "new.csv").write_text("picture\na.png\n")
    for fitted, said in ((None, "which the model reads: name it"), ("photo", "in the fit it was called 'photo'")):
        reads = Reads("image", 3, "efficientnet_lite0", column=fitted)
        model = HeadModel(np.array(["a", "b", "c"]), np.eye(3), np.zeros(3), reads)
        with pytest.raises(InputError, match=said) as caught:
            predict_data(model, tmp_path / "new.csv")
        assert "name it with --column (column= in Python). It has picture." in str(caught.value)


def test_lists_and_columns_of_a_parquet_file_are_the_same(head, tmp_path):
    X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    pd.DataFrame(X, columns=["a", "b", "c"]).to_parquet(tmp_path / "columns.parquet")
    pd.DataFrame({"features": list(X), "id": list("vwxyz")}).to_parquet(tmp_path / "lists.parquet")
    columns, lists = (predict_data(head, tmp_path / f"{name}.parquet") for name in ("columns", "lists"))
    assert np.array_equal(columns.probabilities, head.predict_proba(X))
    assert np.array_equal(lists.probabilities, columns.probabilities)
    assert lists.ids == list("vwxyz")


@pytest.mark.parametrize("column", ["features", "vector"])
def test_a_model_fitted_to_lists_of_a_parquet_file_reads_them_again(column, tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    X = rng.normal(size=(80, 3)) + 2 * y[:, None]
    path = tmp_path / "lists.parquet"
    pd.DataFrame({column: list(X), "label": np.array(["a", "b"])[y], "age": rng.normal(size=80)}).to_parquet(path)
    given = [] if column == "features" else ["--features", column]
    assert main(["fit", str(path), *given, "--out", str(tmp_path / "model"), "--method", "ce"]) == 0
    told = predict_data(icda.load(tmp_path / "model"), path)
    assert told.probabilities.shape == (80, 2)
    assert main(["eval", str(tmp_path / "model"), "--data", str(path)]) == 0


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.csv", "a,b\n1,2\n", "lacks 1 of the 3 columns that the model was fitted to: c"),
        ("a.csv", "a,b,cc\n1,2,3\n", "did you mean 'cc'"),
        ("a.csv", "a,b,c\n1,2,three\n", "'c' in 1 of 1 .first in line 2: 'three'"),
        ("a.csv", "a,b,c\n1,2,nan\n", "NaN or infinite"),
        ("a.csv", "a,b,c\n1,2\n", "2 cells, expected 3"),
        ("a.png", "", "is an image, and the model reads 3 features"),
        ("a.parquet", "PAR1", "is no Parquet file"),
        ("a.npy", "x", "is no .npy file"),
    ],
)
def test_wrong_files_are_one_sentence(name, content, complaint, head, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=complaint):
        predict_data(head, tmp_path / name)


def test_wrong_widths_and_places_are_one_sentence(head, tmp_path):
    np.savez(tmp_path / "wide.npz", features=np.zeros((2, 4)))
    with pytest.raises(InputError, match=r"shape \(2, 4\), the model was fitted to \(N, 3\)"):
        predict_data(head, tmp_path / "wide.npz")
    np.savez(tmp_path / "other.npz", things=np.zeros((2, 3)))
    with pytest.raises(InputError, match="it has things"):
        predict_data(head, tmp_path / "other.npz")
    assert len(predict_data(head, tmp_path / "other.npz", column="things")) == 2
    with pytest.raises(InputError, match="is a folder, and the model reads 3 features"):
        predict_data(head, tmp_path)
    with pytest.raises(MissingFileError, match="is not there"):
        predict_data(head, tmp_path / "nowhere.csv")


def test_a_table_of_images_stays_in_its_folder(image_model, made, tmp_path):
    made.write_images(tmp_path / "outside", 1, classes=False)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "new.csv").write_text("path\n../outside/000.png\n")
    model = icda.load(image_model[0])
    with pytest.raises(InputError, match="lies outside"):
        predict_data(model, tmp_path / "in" / "new.csv")
    assert len(predict_data(model, tmp_path / "in" / "new.csv", allow_outside=True)) == 1
    (tmp_path / "in" / "texts.csv").write_text("words\nhello\n")
    with pytest.raises(InputError, match="has no column of images"):
        predict_data(model, tmp_path / "in" / "texts.csv")
