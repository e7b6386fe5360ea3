import csv

import numpy as np
import pytest
import torch

from icda.data import create_task
from icda.data.datasets.benchmark_files import decode_blob
from icda.data.datasets.waterbirds import CLASSES, GROUPS, MEAN, STD
from icda.data.registry import DatasetNotFoundError
from support import encode_images


def write_features(path, **changes):
    arrays = {
        "feats": np.arange(24, dtype=np.float16).reshape(8, 3),
        "y": np.array([0, 0, 1, 1] * 2, dtype=np.uint8),
        "place": np.array([0, 1, 0, 1] * 2, dtype=np.uint8),
        "split": np.array([0, 0, 0, 0, 1, 1, 2, 2], dtype=np.uint8),
    }
    np.savez(path, **{name: array for name, array in {**arrays, **changes}.items() if array is not None})


@pytest.mark.parametrize("name", ["waterbirds", "waterbirds_64px"])
def test_the_official_split_and_its_groups(name, real_data):
    task = create_task(name, root=real_data)
    sizes = [torch.bincount(split.groups).tolist() for split in (task.train, task.validation, task.test)]
    assert sizes == [[3498, 184, 56, 1057], [467, 466, 133, 133], [2255, 2255, 642, 642]]
    assert task.group_names == GROUPS
    assert task.class_names == CLASSES
    assert "research use only" in task.description
    batch = task.test.batch(torch.tensor([0, 5]))
    assert tuple(batch.inputs.shape[1:]) == task.input_shape
    assert torch.equal(batch.groups // 2, batch.targets)


def test_both_forms_show_the_same_birds_in_the_same_order_and_standardise_the_training_images(real_data):
    features, images = (create_task(name, root=real_data) for name in ("waterbirds", "waterbirds_64px"))
    for split, other in zip(features.splits().values(), images.splits().values(), strict=True):
        assert torch.equal(split.rows, other.rows)
        assert torch.equal(split.targets, other.targets)
        assert torch.equal(split.groups, other.groups)
    train = images.train
    pixels = train.source.images[train.rows[::7]].float() / 255
    assert pixels.mean((0, 1, 2)).tolist() == pytest.approx(MEAN, abs=0.01)
    assert pixels.std((0, 1, 2)).tolist() == pytest.approx(STD, abs=0.01)


def test_the_seed_decides_nothing(tmp_path):
    write_features(tmp_path / "waterbirds_resnet50.npz")
    first, other = (create_task("waterbirds", tmp_path, seed) for seed in (0, 1))
    assert first.data_hash == other.data_hash
    assert first.train.groups.tolist() == [0, 1, 2, 3]
    assert first.test.batch(torch.tensor([1])).inputs.tolist() == [[21.0, 22.0, 23.0]]
    assert first.default_model == "linear"


def test_a_file_without_its_labels_is_refused(tmp_path):
    write_features(tmp_path / "waterbirds_resnet50.npz", y=None, split=None)
    with pytest.raises(ValueError, match="lacks y, split: it holds feats, place"):
        create_task("waterbirds", root=tmp_path)


def test_a_blob_is_decoded_to_the_images_it_was_made_of_and_a_broken_one_is_numbered():
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 4, 3), dtype=np.uint8)
    blob, offsets = encode_images(images).values()
    assert np.array_equal(decode_blob(blob, offsets).numpy(), images)
    broken = blob.copy()
    broken[offsets[1] : offsets[1] + 12] = 0
    with pytest.raises(ValueError, match="image 1 of the blob cannot be decoded"):
        decode_blob(broken, offsets)


COLUMNS = ["img_id", "img_filename", "y", "split", "place", "place_filename"]
BIRDS = [(y, place, split) for split in (0, 0, 1, 2) for y in (0, 1) for place in (0, 1)]


def write_birds(root, write_image, layout="waterbirds_v1.0", birds=BIRDS):
    """Sixteen 8 x 8 JPEGs in folders by species, with metadata.csv as it is published."""
    folder = root / layout
    rows = []
    for number, (y, place, split) in enumerate(birds, 1):
        name = f"00{1 + number % 2}.Species_{number % 2}/Bird_{number:04d}.jpg"
        write_image(folder / name, (8, 6 + y), (40, 60 + 150 * place, 250 * y))
        rows.append([number, name, y, split, place, f"/o/ocean/{number}.jpg"])
    with (folder / "metadata.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    return folder


@pytest.mark.parametrize(
    "layout", ["waterbirds_v1.0", "waterbird_complete95_forest2water2", "cub/data/waterbird_complete95_forest2water2"]
)
def test_every_layout_gives_the_official_split_and_its_groups(layout, write_image, tmp_path):
    write_birds(tmp_path, write_image, layout)
    task = create_task("waterbirds_images", root=tmp_path)
    for number, split in enumerate((task.train, task.validation, task.test)):
        assert split.groups.tolist() == [2 * y + place for y, place, part in BIRDS if part == number]
        assert torch.equal(split.groups // 2, split.targets)
    assert (task.class_names, task.group_names, task.group_attributes) == (CLASSES, GROUPS, (0, 1, 0, 1))
    batch = task.train.batch(torch.tensor([0, 3]), torch.Generator())
    assert batch.inputs.shape == (2, 3, 224, 224)
    # The first bird stands on land (dark green), the fourth on water; one colour fills each image.
    assert batch.inputs[0, 1].mean() < 0 < batch.inputs[1, 1].mean()
    assert "research use only" in task.description


def test_an_image_that_is_missing_is_named(write_image, tmp_path):
    folder = write_birds(tmp_path, write_image)
    (folder / "002.Species_1" / "Bird_0003.jpg").unlink()
    with pytest.raises(DatasetNotFoundError, match=r"1 of 16 images, the first 002.Species_1/Bird_0003.jpg, missing"):
        create_task("waterbirds_images", root=tmp_path)


def test_a_value_that_cannot_be_is_refused(write_image, tmp_path):
    write_birds(tmp_path, write_image, birds=[*BIRDS, (0, 0, 3)])
    with pytest.raises(ValueError, match="split holds '3', expected 0, 1, 2"):
        create_task("waterbirds_images", root=tmp_path)
