import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from icda.data import create_task
from icda.data.datasets.benchmark_files import decode_blob
from icda.data.datasets.waterbirds import CLASSES, GROUPS, MEAN, STD


def write_features(path: Path, **changes: np.ndarray) -> None:
    arrays = {
        "feats": np.arange(24, dtype=np.float16).reshape(8, 3),
        "y": np.array([0, 0, 1, 1] * 2, dtype=np.uint8),
        "place": np.array([0, 1, 0, 1] * 2, dtype=np.uint8),
        "split": np.array([0, 0, 0, 0, 1, 1, 2, 2], dtype=np.uint8),
    }
    np.savez(path, **{**arrays, **changes})


def encode(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    parts = []
    for image in images:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "WEBP", lossless=True)
        parts.append(buffer.getvalue())
    offsets = np.cumsum([0, *(len(part) for part in parts)])
    return np.frombuffer(b"".join(parts), dtype=np.uint8), offsets


@pytest.mark.parametrize("name", ["waterbirds", "waterbirds_64px"])
def test_the_official_split_and_its_groups(name: str, real_data: Path) -> None:
    task = create_task(name, root=real_data)
    sizes = [torch.bincount(split.groups).tolist() for split in (task.train, task.validation, task.test)]  # type: ignore[arg-type]
    assert sizes == [[3498, 184, 56, 1057], [467, 466, 133, 133], [2255, 2255, 642, 642]]
    assert task.group_names == GROUPS
    assert task.class_names == CLASSES
    assert "research use only" in task.description
    batch = task.test.batch(torch.tensor([0, 5]))
    assert tuple(batch.inputs.shape[1:]) == task.input_shape
    assert batch.groups is not None
    assert torch.equal(batch.groups // 2, batch.targets)


def test_both_forms_show_the_same_birds_in_the_same_order(real_data: Path) -> None:
    features, images = (create_task(name, root=real_data) for name in ("waterbirds", "waterbirds_64px"))
    for split, other in zip(features.splits().values(), images.splits().values(), strict=True):
        assert torch.equal(split.rows, other.rows)
        assert torch.equal(split.targets, other.targets)
        assert torch.equal(split.groups, other.groups)


def test_mean_and_std_are_those_of_the_training_images(real_data: Path) -> None:
    train = create_task("waterbirds_64px", root=real_data).train
    pixels = train.source.images[train.rows[::7]].float() / 255  # type: ignore[attr-defined]
    assert pixels.mean((0, 1, 2)).tolist() == pytest.approx(MEAN, abs=0.01)
    assert pixels.std((0, 1, 2)).tolist() == pytest.approx(STD, abs=0.01)


def test_the_seed_decides_nothing(tmp_path: Path) -> None:
    write_features(tmp_path / "waterbirds_resnet50.npz")
    first, other = (create_task("waterbirds", tmp_path, seed) for seed in (0, 1))
    assert first.data_hash == other.data_hash
    assert first.train.groups.tolist() == [0, 1, 2, 3]
    assert first.test.batch(torch.tensor([1])).inputs.tolist() == [[21.0, 22.0, 23.0]]
    assert first.default_model == "linear"


def test_an_array_that_is_missing_or_does_not_fit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "waterbirds_resnet50.npz"
    np.savez(path, feats=np.zeros((4, 2), np.float16))
    with pytest.raises(ValueError, match="lacks y, place, split: it holds feats"):
        create_task("waterbirds", root=tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"place": np.zeros(7, np.uint8)}, r"place must have one entry for each of 8 samples, got \(7,\)"),
        ({"split": np.full(8, 3, np.uint8)}, r"split must lie in 0\.\.2, it reaches 3"),
    ],
)
def test_labels_that_cannot_be_are_refused(changes: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    write_features(tmp_path / "waterbirds_resnet50.npz", **changes)
    with pytest.raises(ValueError, match=message):
        create_task("waterbirds", root=tmp_path)


def test_a_blob_is_decoded_to_the_images_it_was_made_of() -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 4, 3), dtype=np.uint8)
    assert np.array_equal(decode_blob(*encode(images)).numpy(), images)


def test_a_broken_image_of_a_blob_is_numbered() -> None:
    blob, offsets = encode(np.zeros((3, 4, 4, 3), np.uint8))
    broken = blob.copy()
    broken[offsets[1] : offsets[1] + 12] = 0
    with pytest.raises(ValueError, match="image 1 of the blob cannot be decoded"):
        decode_blob(broken, offsets)
