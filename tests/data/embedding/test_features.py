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


@pytest.fixture
def features_file(tmp_path):
    values = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    arrays = {
        "id": np.array([f"picture {i}.png" for i in range(30)]),
        "skipped": np.array([], dtype=str),
        "encoder": np.array("tiny"),
        "encoder_version": np.array("1"),
        "y": np.array(["cat", "dog"])[np.arange(30) % 2],
    }
    write_arrays(tmp_path / "features.npz", arrays, [values[:10], values[10:]], (30, 6))
    return tmp_path / "features.npz"


def test_mapped_features_are_those_that_load_features_reads(features_file):
    mapped, loaded = map_features(features_file), load_features(features_file)
    assert isinstance(mapped.features, np.memmap)
    np.testing.assert_array_equal(mapped.features, loaded.features)
    assert mapped.y.tolist() == loaded.y.tolist()
    assert (mapped.encoder, mapped.group) == ("tiny", None)


def test_compressed_features_cannot_be_mapped(tmp_path):
    plain = {"id": np.arange(2), "skipped": np.arange(0), "encoder": np.array("x"), "encoder_version": np.array("1")}
    np.savez_compressed(tmp_path / "small.npz", features=np.zeros((2, 2)), **plain)
    with pytest.raises(ValueError, match="compressed and cannot be mapped: use load_features"):
        map_features(tmp_path / "small.npz")
