import csv
from pathlib import Path
from typing import Any

import pytest
import torch

from icda.data import create_task
from icda.data.datasets.waterbirds import CLASSES, GROUPS
from icda.data.roots import DatasetNotFoundError

COLUMNS = ["img_id", "img_filename", "y", "split", "place", "place_filename"]
BIRDS = [(y, place, split) for split in (0, 0, 1, 2) for y in (0, 1) for place in (0, 1)]


@pytest.fixture
def write_birds(tmp_path: Path, write_image: Any) -> Any:
    """Sixteen 8 x 8 JPEGs in folders by species, with metadata.csv as it is published."""

    def write(layout: str = "waterbirds_v1.0", columns: list[str] = COLUMNS, birds: list[tuple] = BIRDS) -> Path:
        folder = tmp_path / layout
        rows = []
        for number, (y, place, split) in enumerate(birds, 1):
            name = f"00{1 + number % 2}.Species_{number % 2}/Bird_{number:04d}.jpg"
            write_image(folder / name, (8, 6 + y), (40, 60 + 150 * place, 250 * y))
            rows.append([number, name, y, split, place, f"/o/ocean/{number}.jpg"])
        with (folder / "metadata.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(rows)
        return folder

    return write


@pytest.mark.parametrize(
    "layout",
    [
        "waterbirds_v1.0",
        "waterbird_complete95_forest2water2",
        "cub/data/waterbird_complete95_forest2water2",
    ],
)
def test_every_layout_gives_the_official_split_and_its_groups(layout: str, write_birds: Any, tmp_path: Path) -> None:
    write_birds(layout)
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


def test_an_image_that_is_missing_is_named(write_birds: Any, tmp_path: Path) -> None:
    folder = write_birds()
    (folder / "002.Species_1" / "Bird_0003.jpg").unlink()
    with pytest.raises(DatasetNotFoundError, match=r"1 of 16 images, the first 002.Species_1/Bird_0003.jpg, missing"):
        create_task("waterbirds_images", root=tmp_path)


def test_a_table_without_the_place_is_refused(write_birds: Any, tmp_path: Path) -> None:
    write_birds(columns=["img_id", "img_filename", "y", "split", "where", "place_filename"])
    with pytest.raises(ValueError, match="lacks place: its columns are img_id, img_filename"):
        create_task("waterbirds_images", root=tmp_path)


@pytest.mark.parametrize(
    ("bird", "message"),
    [
        ((2, 0, 0), "y holds '2', expected 0, 1"),
        ((0, 3, 0), "place holds '3'"),
        ((0, 0, 3), "split holds '3', expected 0, 1, 2"),
    ],
)
def test_values_that_cannot_be_are_refused(
    bird: tuple[int, int, int], message: str, write_birds: Any, tmp_path: Path
) -> None:
    write_birds(birds=[*BIRDS, bird])
    with pytest.raises(ValueError, match=message):
        create_task("waterbirds_images", root=tmp_path)


def test_two_epochs_of_training_judge_all_four_groups(write_birds: Any, train_briefly: Any) -> None:
    write_birds()
    settings = {"model": "small_cnn", "batch_size": 4, "selection": "validation_worst_group"}
    assert set(train_briefly("waterbirds_images", **settings)["per_group_accuracy"]) == set(GROUPS)
