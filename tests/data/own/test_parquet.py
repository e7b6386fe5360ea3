import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icda.data.own.parquet import ParquetTable, spooled


def write(path, size=50, **columns):
    values = np.random.default_rng(size).normal(size=(size, 4)).astype(np.float32)
    table = {
        "embedding": pa.array(values.tolist(), pa.list_(pa.float32())),
        "fixed": pa.FixedSizeListArray.from_arrays(pa.array(values.flatten()), 4),
        "half": pa.array(values.astype(np.float16).tolist(), pa.list_(pa.float16())),
        **{f"f{i}": values[:, i] for i in range(4)},
        "label": [("cat", "dog", "owl")[i % 3] for i in range(size)],
        "coded": pa.array([("cat", "dog")[i % 2] for i in range(size)]).dictionary_encode(),
        "number": np.arange(size) % 2,
        "weight": np.arange(size) / size,
        **columns,
    }
    pq.write_table(pa.table(table), path, row_group_size=17)
    return values


def gathered(table, batch_size=8):
    return np.concatenate([batch.features for batch in table.batches(batch_size)])


@pytest.mark.parametrize("features", ["embedding", "fixed", "half", "f", ["f0", "f1", "f2", "f3"]])
def test_features_come_as_lists_or_columns(features, tmp_path):
    values = write(tmp_path / "a.parquet")
    if features == "f":  # would be "fixed" too
        pq.write_table(pq.read_table(tmp_path / "a.parquet").drop_columns(["fixed"]), tmp_path / "a.parquet")
    table = ParquetTable(tmp_path / "a.parquet", features, "label")
    assert (table.num_rows, table.width, gathered(table).dtype) == (50, 4, np.float32)  # half precision is widened
    np.testing.assert_array_equal(gathered(table), values.astype(np.float16) if features == "half" else values)


def test_a_folder_is_read_file_by_file_and_targets_stay_with_their_rows(tmp_path):
    parts = [
        write(tmp_path / f"{name}.parquet", size, number=np.full(size, size)) for name, size in (("a", 30), ("b", 45))
    ]
    table = ParquetTable(tmp_path, "embedding", "number", sample_weight="weight", groups="coded")
    batches = list(table.batches(8))
    np.testing.assert_array_equal(np.concatenate([batch.features for batch in batches]), np.concatenate(parts))
    assert np.concatenate([batch.targets for batch in batches]).tolist() == [30] * 30 + [45] * 45
    assert np.concatenate([batch.groups for batch in batches])[:2].tolist() == ["cat", "dog"]
    assert table.labels().tolist() == [30, 45]
    several = ParquetTable([tmp_path / "b.parquet", tmp_path / "a.parquet"], "embedding", "number")
    np.testing.assert_array_equal(gathered(several), np.concatenate(parts[::-1]))


@pytest.mark.parametrize("in_memory", [0, 2**20])
def test_spooled_features_are_those_of_the_file_and_the_copy_is_gone_afterwards(in_memory, tmp_path):
    values = write(tmp_path / "a.parquet")
    folder = tmp_path / "spool"
    folder.mkdir()
    seen = []
    table = ParquetTable(tmp_path / "a.parquet", "embedding", "label", sample_weight="weight")
    with spooled(table, folder, in_memory, 8, seen.append) as samples:
        np.testing.assert_array_equal(samples.features, values)
        assert isinstance(samples.features, np.memmap) == (in_memory == 0)
        assert samples.targets[:3].tolist() == ["cat", "dog", "owl"]
        assert samples.weights is not None
        assert samples.groups is None
    assert sum(seen) == 50
    assert list(folder.iterdir()) == []


def test_a_full_disk_is_found_before_reading(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet")
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    table = ParquetTable(tmp_path / "a.parquet", "embedding", "label")
    with pytest.raises(OSError, match="name another folder with tempdir="), spooled(table, tmp_path, 0):
        pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("embeding", "label"), "no column is called 'embeding'"),
        (("embedding", "lable"), "did you mean 'label'"),
        ((["f0", "g1"], "label"), "no feature column 'g1'"),
        (("label", "f0"), "holds string, expected numbers"),
        (("label", "label"), "is given as a feature and as the target"),
        (("embedding", "label", "holes"), "column 'holes' has 1 empty cells"),
        (("ragged", "label"), r"has lists of \[3, 4\] numbers, expected 4"),
        (("missing", "label"), "rows without a list"),
        (("embedding", "long"), "column 'long' holds a text of 5000 characters"),  # before it fills the memory
    ],
)
def test_columns_that_do_not_fit_are_named(arguments, message, tmp_path):
    lists = [[1.0] * 4] * 50
    write(
        tmp_path / "a.parquet",
        holes=[None] + [1.0] * 49,
        long=["x" * 5000] + ["a"] * 49,
        ragged=pa.array([*lists[:-1], [1.0] * 3], pa.list_(pa.float32())),
        missing=pa.array([*lists[:-1], None], pa.list_(pa.float32())),
    )
    with pytest.raises(ValueError, match=message):
        list(ParquetTable(tmp_path / "a.parquet", *arguments).batches(100))
    with pytest.raises(FileNotFoundError, match=r"none.parquet is not there"):
        ParquetTable(tmp_path / "none.parquet", *arguments)


def test_empty_cells_among_features_become_nan(tmp_path):
    write(tmp_path / "a.parquet", g0=[None] + [1.0] * 49, g1=[1] * 50)
    found = gathered(ParquetTable(tmp_path / "a.parquet", "g", "label"))
    assert np.isnan(found[0, 0])
    assert np.isfinite(found[1:]).all()


def test_a_label_whose_name_begins_like_the_features_is_no_feature(tmp_path):
    values = np.arange(8.0).reshape(4, 2)
    columns = {
        "f0": values[:, 0],
        "f1": values[:, 1],
        "flag": [0, 1, 0, 1],
        "fweight": [1.0] * 4,
        "fgroup": [0, 0, 1, 1],
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    table = ParquetTable(tmp_path / "a.parquet", "f", "flag", "fweight", "fgroup")
    assert table.features == ["f0", "f1"]
    np.testing.assert_array_equal(gathered(table), values)
    with pytest.raises(ValueError, match="'flag' is given as a feature and as the target"):
        ParquetTable(tmp_path / "a.parquet", ["f0", "flag"], "flag")
