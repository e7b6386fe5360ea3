from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from icda.data.datasets import tiny_imagenet
from icda.data.datasets.tiny_imagenet import (
    FILE,
    locate_file,
    main,
    make_clusters,
    read_clusters,
    read_stored,
    write_images,
)
from icda.data.embedding.features import write_arrays

IMAGES = 40  # of two classes


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encode_images: Any) -> Path:
    """A small file of the layout, lossless, named by ICDA_DATA."""
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, 32, 32, 3), dtype=np.uint8)
    known = {"y": (np.arange(IMAGES) % 2).astype(np.uint8), "split": np.zeros(IMAGES, dtype=np.uint8)}
    np.savez(tmp_path / FILE, **encode_images(pixels), **known, wnids=np.array(["n0", "n1"]))
    monkeypatch.setenv("ICDA_DATA", str(tmp_path))
    return tmp_path


def write_features(path: Path, features: np.ndarray, names: list[str]) -> None:
    arrays = {"id": np.array(names), "skipped": np.array([], dtype="<U1")}
    arrays |= {"encoder": np.array("an encoder"), "encoder_version": np.array("1")}
    write_arrays(path, arrays, [features], features.shape)


def test_images_are_written_in_the_order_of_the_file(root: Path) -> None:
    assert main(["images", str(root / "images")]) == 0
    names = sorted(path.name for path in (root / "images").iterdir())
    assert names == [f"{row:05d}.png" for row in range(IMAGES)]
    stored = read_stored(locate_file(root))
    for row, name in enumerate(names):
        assert np.array_equal(np.asarray(Image.open(root / "images" / name)), stored.images[row])
    assert write_images(root / "images", root) == IMAGES


def test_clusters_are_of_directions_and_lengths_do_not_matter(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of each class's 20 images 8, 5, 3, 2, 1, 1 point in one of six directions, with very different lengths.
    directions = np.repeat(np.arange(6), (8, 5, 3, 2, 1, 1)).repeat(2)
    lengths = np.random.default_rng(1).uniform(0.01, 100, (IMAGES, 1))
    features = (np.eye(6)[directions] * lengths).astype(np.float32)
    write_features(root / "features.npz", features, [f"{row:05d}.png" for row in range(IMAGES)])
    assert main(["clusters", str(root / "features.npz"), str(root / "clusters.npz")]) == 0
    stored = read_stored(locate_file(root))
    monkeypatch.setattr(tiny_imagenet, "CLUSTER_FILE", root / "clusters.npz")
    clusters = read_clusters(stored)
    assert torch.equal(clusters[directions < 4], torch.from_numpy(directions[directions < 4]))
    assert set(clusters[directions >= 4].tolist()) == {4, 5}


def test_features_of_other_images_are_refused(root: Path) -> None:
    names = [f"{row:05d}.png" for row in range(IMAGES)][::-1]
    write_features(root / "features.npz", np.ones((IMAGES, 3), dtype=np.float32), names)
    with pytest.raises(ValueError, match="expected one for each of 40 images in the order of the file"):
        make_clusters(root / "features.npz", root / "clusters.npz", root)


def test_the_clusters_of_the_package_are_refused_for_another_file(root: Path) -> None:
    with pytest.raises(ValueError, match="not of this"):
        read_clusters(read_stored(locate_file(root)))


def test_the_clusters_of_the_package_are_numbered_by_size(real_data: Path) -> None:
    if not (real_data / FILE).is_file():
        pytest.skip(f"REAL DATA NOT TESTED: {FILE} is not there.")
    stored = read_stored(locate_file(real_data))
    clusters = read_clusters(stored)
    assert clusters.shape == (15_847,)
    counts = torch.zeros(100, 6, dtype=torch.long)
    counts.index_put_((stored.labels, clusters), torch.ones(len(clusters), dtype=torch.long), accumulate=True)
    assert (counts[:, :-1] >= counts[:, 1:]).all()
    assert (counts[:, 5] > 0).all()
    # What the sizes of the tasks were chosen by.
    assert [int(counts[:, pair : pair + 2].sum(1).min()) for pair in (0, 2, 4)] == [25, 13, 3]
