from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from icda.data.embedding.features import load_features, map_features, write_arrays


@pytest.fixture
def features_file(tmp_path: Path) -> Path:
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


def test_mapped_features_are_those_that_load_features_reads(features_file: Path) -> None:
    mapped, loaded = map_features(features_file), load_features(features_file)
    assert isinstance(mapped.features, np.memmap)
    np.testing.assert_array_equal(mapped.features, loaded.features)
    assert mapped.y.tolist() == loaded.y.tolist()
    assert (mapped.encoder, mapped.group) == ("tiny", None)


def test_compressed_features_cannot_be_mapped(tmp_path: Path) -> None:
    plain = {"id": np.arange(2), "skipped": np.arange(0), "encoder": np.array("x"), "encoder_version": np.array("1")}
    np.savez_compressed(tmp_path / "small.npz", features=np.zeros((2, 2)), **plain)
    with pytest.raises(ValueError, match="compressed and cannot be mapped: use load_features"):
        map_features(tmp_path / "small.npz")


def test_another_archive_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", numbers=np.zeros(3))
    with pytest.raises(ValueError, match="was not written by `icda embed`"):
        map_features(tmp_path / "other.npz")
