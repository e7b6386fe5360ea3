"""`icda eval MODEL --data FILE` on files of features: which rows, labels and columns are judged."""

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from icda.cli.output import group_table
from icda.data.embedding.samples import Reads
from icda.errors import InputError
from icda.serving import predict_data
from icda.serving.fit_data import Asked, read_fit_data
from icda.serving.head import HeadModel
from icda.serving.judging import judge_data

LABELS = np.array(["ant", "bee", "ant", "bee", "bee", "ant"])
X = np.array([[1.0, 0], [0, 1.0], [1.0, 0], [0, 1.0], [1.0, 0], [0, 1.0]])  # the last two are judged wrong


def save(folder, **reads):
    """Two features, two classes: the larger feature wins."""
    known = {"kind": "features", "width": 2, **reads}
    HeadModel(np.array(["ant", "bee"]), np.eye(2), np.zeros(2), Reads(**known)).save(folder)
    return folder


def accuracy(folder, data, split="test"):
    result = judge_data(folder, str(data), split)
    counts = np.array(result.confusion)
    return result.split, int(counts.sum()), float(np.trace(counts) / counts.sum())


@pytest.mark.parametrize("splits", [["Training", "val", "dev", "train", "testing", "TEST"], [0, 1, 1, 0, 2, 2]])
@pytest.mark.parametrize("suffix", ["npz", "csv", "parquet"])
def test_the_split_of_that_name_is_judged(splits, suffix, made, tmp_path):
    model = save(tmp_path / "m", columns=None if suffix == "npz" else ("a", "b"))
    path = made.write_features(tmp_path / f"f.{suffix}", X, "ab", label=LABELS, split=splits)
    assert accuracy(model, path) == ("test", 2, 0.0)
    assert accuracy(model, path, "validation") == ("validation", 2, 1.0)
    assert accuracy(model, path, "metadata") == ("all", 6, pytest.approx(4 / 6))


def test_labels_of_the_training_file_are_never_those_of_new_features(tmp_path):
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", LABELS)
    labels = str(tmp_path / "y.npy")
    data = read_fit_data(tmp_path / "X.npy", Asked(labels=labels), tmp_path / "out")
    assert data.labels.tolist() == LABELS.tolist()
    assert data.reads.label is None
    older = save(tmp_path / "older", label=labels)  # a model of an earlier icda
    with pytest.raises(InputError, match="features without labels: put both into one"):
        judge_data(older, str(tmp_path / "X.npy"))
    np.savez(tmp_path / "f.npz", X=X, y=LABELS)
    assert accuracy(older, tmp_path / "f.npz") == ("all", 6, pytest.approx(4 / 6))


def test_features_of_another_encoder_are_refused(tmp_path):
    model = save(tmp_path / "m", encoder="one", encoder_version="one 1, weights 000000000000", image_size=64)
    made = {"encoder": "two", "encoder_version": "two 1, weights ffffffffffff"}
    np.savez(tmp_path / "f.npz", X=X, y=LABELS, **made)
    with pytest.raises(InputError, match=r"of two .* embed with the same encoder"):
        judge_data(model, str(tmp_path / "f.npz"))
    np.savez(tmp_path / "g.npz", X=X, y=LABELS, image_size=32)
    with pytest.raises(InputError, match="embed with --image-size 64"):
        judge_data(model, str(tmp_path / "g.npz"))


@pytest.mark.parametrize("code", [-1, 2])
def test_a_label_without_a_class_name_is_refused(code, tmp_path):
    codes = (LABELS == "bee").astype(int)
    model, names = save(tmp_path / "m"), np.array(["ant", "bee"])
    np.savez(tmp_path / "good.npz", X=X, y=codes, class_names=names)
    assert accuracy(model, tmp_path / "good.npz") == ("all", 6, pytest.approx(4 / 6))
    codes[3] = code
    np.savez(tmp_path / "f.npz", X=X, y=codes, class_names=names)
    with pytest.raises(InputError, match=f"label of row 3 is {code}, expected 0 to 1 for its 2 class_names"):
        judge_data(model, str(tmp_path / "f.npz"))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_column_of_the_fit_is_read_even_if_it_numbers_the_rows(suffix, tmp_path):
    """So is one that is called as an array of features or as a name would be."""
    model = save(tmp_path / "m", columns=("x", "id"))
    path = tmp_path / f"f.{suffix}"
    frame = pd.DataFrame({"label": ["bee", "bee", "ant", "bee"], "id": [7.5, 7.5, 7.5, 7.5], "x": [5, 6, 8, 7]})
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    assert accuracy(model, path) == ("all", 4, 1.0)
    frame = frame.rename(columns={"x": "z"}).assign(z=[1, 1, 2, 2])
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    with pytest.raises(InputError, match="lacks 1 of the 2 columns that the model was fitted to: x"):
        judge_data(model, str(path))


def test_one_number_called_x_is_a_column_among_others(made, tmp_path):
    values, y = made.numbers(60)
    path = tmp_path / "f.parquet"
    pd.DataFrame(values[:, :3], columns=["x", "height", "X"]).assign(y=y).to_parquet(path)
    data = read_fit_data(path, Asked(), tmp_path / "out")
    assert data.reads.columns == ("x", "height", "X")
    assert np.allclose(data.features, values[:, :3], atol=1e-6)
    head = HeadModel(np.array(["a", "b", "c"]), np.eye(3), np.zeros(3), data.reads)
    found = predict_data(head, path)
    assert found.labels.tolist() == np.array(["a", "b", "c"])[values[:, :3].argmax(1)].tolist()
    with pytest.raises(InputError, match="no column is called 'hight' or begins so: did you mean 'height'"):
        predict_data(replace(head), path, column="hight")


PLACES = np.array(["snow", "snow", "grass", "grass", "snow", "grass"])


@pytest.mark.parametrize("suffix", ["npz", "csv", "parquet"])
@pytest.mark.parametrize("remembered", [True, False])
def test_the_worst_group_is_class_and_attribute_as_in_the_fit(suffix, remembered, made, tmp_path):
    """By the attribute alone both groups have 10 of 15; the wrong ones are all ants on grass and bees on snow."""
    tables = None if suffix == "npz" else ("a", "b")
    model = save(tmp_path / "m", columns=tables, group="place" if remembered else None)
    values, labels, places = (np.repeat(part, 5, axis=0) for part in (X, LABELS, PLACES))
    path = made.write_features(tmp_path / f"f.{suffix}", values, "ab", label=labels, place=places)
    result = judge_data(model, str(path), group_column=None if remembered else "place")
    expected = {"ant, grass": 0.5, "ant, snow": 1.0, "bee, grass": 1.0, "bee, snow": 0.5}
    assert result.metrics["per_group_accuracy"] == expected
    assert result.metrics["worst_group_accuracy"] == 0.5
    assert dict(zip(result.group_names or (), result.group_samples or (), strict=True))["ant, grass"] == 10


def test_a_group_too_small_to_judge_is_not_the_worst_and_is_shown(tmp_path):
    values = np.concatenate([np.repeat([[1.0, 0]], 10, 0), np.repeat([[0, 1.0]], 10, 0), [[0, 1.0]]])
    np.savez(tmp_path / "f.npz", X=values, y=["ant"] * 10 + ["bee"] * 10 + ["ant"], place=["a", "b"] * 10 + ["c"])
    result = judge_data(save(tmp_path / "m"), str(tmp_path / "f.npz"), group_column="place")
    assert result.metrics["per_group_accuracy"]["ant, c"] == 0.0
    assert result.metrics["worst_group_accuracy"] == 1.0
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(group_table(result))
    assert "too few to judge" in console.export_text()


def test_data_without_the_column_of_the_fit_are_judged_without_groups_and_it_is_said(made, tmp_path):
    np.savez(tmp_path / "f.npz", X=X, y=LABELS)
    said = []
    result = judge_data(save(tmp_path / "m", group="place"), str(tmp_path / "f.npz"), say=said.append)
    assert not result.group_names
    assert "has no 'place', by which the model was fitted" in said[0]
    with pytest.raises(InputError, match="has no group array 'plaec'"):
        judge_data(save(tmp_path / "n"), str(tmp_path / "f.npz"), group_column="plaec")
    made.write_features(tmp_path / "h.csv", X, "ab", label=LABELS, place=["a", None, "b", "a", "b", "a"])
    with pytest.raises(InputError, match="the group of 1 of 6 samples is not known"):
        judge_data(save(tmp_path / "o", columns=("a", "b")), str(tmp_path / "h.csv"), group_column="place")
