import numpy as np
import pytest

from icda.data.embedding.features import load_features, map_features, write_arrays

ARRAYS = {
    "id": np.array(["a", "b", "c"]),
    "skipped": np.array([], dtype="<U1"),
    "encoder": np.array("means"),
    "encoder_version": np.array("1"),
}
VALUES = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_blocks_written_one_by_one_are_read_as_one_array(tmp_path):
    path = tmp_path / "deep" / "f.npz"
    write_arrays(path, ARRAYS, [VALUES[:2], VALUES[2:]], (3, 2))
    with np.load(path, allow_pickle=False) as file:
        assert np.array_equal(file["features"], VALUES)
        assert file["features"].dtype == np.float32
    features = load_features(path)
    assert (features.encoder, features.encoder_version, features.id.tolist(), len(features)) == (
        "means",
        "1",
        ["a", "b", "c"],
        3,
    )
    assert features.y is None
    assert features.split is None


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "f.npz"
    write_arrays(path, ARRAYS, [VALUES], (3, 2))
    before = path.read_bytes()

    def broken():
        yield VALUES[:1]
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_arrays(path, ARRAYS, broken(), (3, 2))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["f.npz"]


def test_files_that_are_none_of_ours_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not there: `icda embed DATA --out"):
        load_features(tmp_path / "f.npz")
    np.savez(tmp_path / "other.npz", features=VALUES)
    with pytest.raises(ValueError, match="lacks id, skipped, encoder, encoder_version"):
        load_features(tmp_path / "other.npz")
    np.savez(tmp_path / "objects.npz", features=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"no .npz file of plain arrays"):
        load_features(tmp_path / "objects.npz")
    write_arrays(tmp_path / "cut.npz", ARRAYS, [VALUES], (3, 2))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:200])
    for name, content in (("cut.npz", None), ("text.npz", b"hello"), ("empty.npz", b"")):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} is no .npz file"):
            load_features(tmp_path / name)
    np.save(tmp_path / "array.npy", VALUES)
    with pytest.raises(ValueError, match=r"array.npy is no .npz file"):
        load_features(tmp_path / "array.npy")


def test_mapped_features_are_those_that_load_features_reads_and_compressed_ones_cannot_be_mapped(tmp_path):
    write_arrays(tmp_path / "f.npz", {**ARRAYS, "y": np.array(["cat", "dog", "cat"])}, [VALUES], (3, 2))
    mapped, loaded = map_features(tmp_path / "f.npz"), load_features(tmp_path / "f.npz")
    assert isinstance(mapped.features, np.memmap)
    np.testing.assert_array_equal(mapped.features, loaded.features)
    assert mapped.y.tolist() == loaded.y.tolist()
    assert (mapped.encoder, mapped.group) == ("means", None)
    np.savez_compressed(tmp_path / "small.npz", features=VALUES, **ARRAYS)
    with pytest.raises(ValueError, match="compressed and cannot be mapped: use load_features"):
        map_features(tmp_path / "small.npz")
