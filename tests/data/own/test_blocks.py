"""Blocks of feature files: what can be read is read alike, and what cannot is named before the first pass."""

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

from icda.data.embedding.samples import Columns
from icda.data.own.blocks import find_blocks
from icda.data.own.feature_files import read_features
from icda.engines import Here
from icda.errors import InputError
from icda.serving.head_fit import fit_from_blocks


@pytest.fixture
def files(tmp_path):
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 90)
    paths = tmp_path / "features.npy", tmp_path / "labels.npy"
    np.save(paths[0], generator.normal(size=(90, 4)) + labels[:, None])
    np.save(paths[1], labels)
    return paths


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (np.zeros((0, 3)), "no rows"),
        (np.zeros((4, 0)), "no features"),
        (np.zeros((4, 2), dtype=complex), "expected numbers"),
        (np.full((4, 2), "0"), "expected numbers"),
    ],
)
def test_features_that_are_no_numbers_are_refused(features, said, tmp_path):
    np.save(tmp_path / "x.npy", features)
    np.save(tmp_path / "y.npy", np.zeros(len(features)))
    with pytest.raises(InputError, match=said):
        find_blocks(tmp_path / "x.npy", Columns(labels=str(tmp_path / "y.npy")))


def test_an_npz_of_others_and_other_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "own.npz", features=np.eye(4), y=np.arange(4), kind=np.arange(4))
    with pytest.raises(InputError, match="not written by `icda embed`"):
        find_blocks(tmp_path / "own.npz", Columns())
    with pytest.raises(InputError, match="got --labels kind"):
        find_blocks(tmp_path / "own.npz", Columns(labels="kind"))


def test_labels_that_are_python_objects_or_not_known_are_refused(files, tmp_path):
    np.save(tmp_path / "objects.npy", np.array(["a", 1], dtype=object))
    with pytest.raises(InputError, match="numbers or texts"):
        find_blocks(files[0], Columns(labels=str(tmp_path / "objects.npy")))
    labels = np.arange(len(np.load(files[1]))) % 2.0
    labels[:2] = np.nan
    np.save(tmp_path / "nan.npy", labels)
    with pytest.raises(InputError, match=rf"labels of rows 0 to {len(labels) - 1} of .* hold NaN"):
        fit_from_blocks(files[0], Columns(labels=str(tmp_path / "nan.npy")), "la", Here())


def test_bytes_in_the_other_order_give_the_same_head(files, tmp_path):
    features = np.load(files[0])
    np.save(tmp_path / "turned.npy", features.astype(features.dtype.newbyteorder()))
    heads = [
        fit_from_blocks(path, Columns(labels=str(files[1])), "la", Here())
        for path in (files[0], tmp_path / "turned.npy")
    ]
    np.testing.assert_array_equal(heads[0].coef, heads[1].coef)


def test_parts_without_rows_are_left_out_and_columns_are_taken_by_name(tmp_path):
    table = arrow.table({"f0": [0.0, 1.0], "f1": [2.0, 3.0], "label": ["a", "b"]})
    parts = {"a": table.slice(0, 0), "b": table, "c": table.select(["f1", "f0", "label"])}
    for name, part in parts.items():
        parquet.write_table(part, tmp_path / f"{name}.parquet")
    blocks = find_blocks(tmp_path, Columns(features="f", labels="label"))
    assert [block.read()[0].tolist() for block in blocks] == 2 * [[[0.0, 2.0], [1.0, 3.0]]]
    parquet.write_table(table.drop_columns(["f0"]), tmp_path / "d.parquet")
    with pytest.raises(InputError, match="f0"):
        find_blocks(tmp_path, Columns(features="f", labels="label"))


def test_files_of_other_widths_are_named(tmp_path):
    for width in (2, 3):
        table = arrow.table({"embedding": [[1.0] * width], "label": ["a"]})
        parquet.write_table(table, tmp_path / f"{width}.parquet")
    with pytest.raises(InputError, match=r"3\.parquet has 3 features per row, and the files before it 2"):
        find_blocks(tmp_path, Columns(features="embedding", labels="label"))


@pytest.mark.parametrize("column", ["split", "other"])
def test_a_fit_says_that_rows_of_the_test_split_are_fitted_too(tmp_path, column):
    table = {"f0": np.arange(8.0), "label": list("ababbaab"), column: 4 * ["train", "test"]}
    parquet.write_table(arrow.table(table), tmp_path / "rows.parquet")
    said = []
    model = fit_from_blocks(tmp_path / "rows.parquet", Columns(features="f", labels="label"), "la", Here(), said.append)
    assert any("test split" in words for words in said) == (column == "split")
    assert bool(model.facts["notes"]) == (column == "split")


def test_groups_that_are_not_known_are_none_in_arrays_and_in_parquet(tmp_path):
    """In a text array of NumPy "" says so, in Parquet an empty cell; in memory they are read alike."""
    features, labels, groups = np.eye(6), list("abcabc"), ["sea", "", "land", "sea", "", "land"]
    known = [group or None for group in groups]
    np.save(tmp_path / "x.npy", features)
    np.save(tmp_path / "y.npy", labels)
    np.save(tmp_path / "g.npy", groups)
    numbers = [7, None, 8, 7, None, 8]
    columns = {"features": features.tolist(), "label": labels, "group": known, "number": numbers}
    parquet.write_table(arrow.table(columns), tmp_path / "p.parquet")
    named = Columns(labels=str(tmp_path / "y.npy"), groups=str(tmp_path / "g.npy"))
    for path, wanted in (("x.npy", named), ("p.parquet", Columns(groups="group"))):
        (block,) = find_blocks(tmp_path / path, wanted)
        assert block.groups().tolist() == known
    assert read_features(tmp_path / "p.parquet", Columns(groups="group")).groups.tolist() == known
    assert find_blocks(tmp_path / "p.parquet", Columns(groups="number"))[0].groups().tolist() == numbers
