from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from icda.data import create_task
from icda.data.bias.generalised_tail import TailSizes
from icda.data.datasets.imagenet_glt import BALANCED, LONG_TAILED, main, make_imagenet_glt
from icda.data.embedding.features import write_arrays
from icda.data.registry import DatasetNotFoundError

CLASSES = ("n01440764", "n01443537")
FOREIGN = "/data4/imagenet/ILSVRC/Data/CLS-LOC/train"  # where the published file's images lay
Numbers = dict[str, list[tuple[int, int]]]  # a set's images: (class, attribute) of each


def write_annotation(folder: Path, file: str, sets: Numbers, first: int) -> list[str]:
    """A file in the published layout; gives the images' places below the folder of images."""
    content: dict[str, Any] = {
        "cat2id": {name: str(number) for number, name in enumerate(CLASSES)},
        "id2cat": {str(number): name for number, name in enumerate(CLASSES)},
    }
    places = []
    for name in ("train", "val", "test_lt", "test_bl", "test_bbl"):
        content[name] = {"label": {}, "frequency": {}, "attribute": {}}
        for label, attribute in sets.get(name, []):
            place = f"{CLASSES[label]}/{CLASSES[label]}_{first}.JPEG"
            key = f"{FOREIGN}/{place}"
            content[name]["label"][key] = str(label)
            content[name]["frequency"][key] = label
            content[name]["attribute"][key] = attribute
            places.append(place)
            first += 1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(json.dumps(content))
    return places


@pytest.fixture
def folder(tmp_path: Path, write_image: Any) -> Path:
    folder = tmp_path / "imagenet_glt"
    long_tailed: Numbers = {
        "train": [(0, 0), (0, 0), (0, 1), (0, 2), (1, 0)],
        "val": [(0, 0), (0, 0), (0, 1), (1, 0)],
        "test_lt": [(0, 0)],
        "test_bl": [(0, 0), (1, 0)],
        "test_bbl": [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
    }
    balanced: Numbers = {"train": [(0, 0), (1, 0)], "val": [(1, 2)], "test_bl": [(1, 1)], "test_bbl": [(0, 2), (1, 2)]}
    places = write_annotation(folder, LONG_TAILED, long_tailed, 0) + write_annotation(folder, BALANCED, balanced, 100)
    for place in places:
        write_image((folder / "images" / place).with_suffix(".png"), (140, 130)).rename(folder / "images" / place)
    return folder


def test_class_long_tail_trains_on_train_and_tests_on_test_bl(folder: Path) -> None:
    task = create_task("imagenet_glt_clt", folder.parent)
    assert (task.name, task.class_names, task.num_groups) == ("imagenet_glt_clt", CLASSES, 3)
    assert task.class_counts.tolist() == [4, 1]
    assert task.train.groups.tolist() == [0, 0, 1, 2, 0]
    assert task.test.targets.tolist() == [0, 1]
    assert task.input_shape == (3, 112, 112)
    assert task.train.batch(torch.tensor([0, 4])).inputs.shape == (2, 3, 112, 112)


def test_generalised_long_tail_tests_on_test_bbl(folder: Path) -> None:
    task = create_task("imagenet_glt_glt", folder.parent)
    assert task.test.groups.tolist() == [0, 1, 2] * 2
    assert task.class_counts.tolist() == [4, 1]


def test_attribute_long_tail_takes_both_from_the_balanced_file(folder: Path) -> None:
    task = create_task("imagenet_glt_alt", folder.parent)
    assert task.class_counts.tolist() == [1, 1]
    assert task.test.targets.tolist() == [0, 1]


def test_metadata_come_from_the_other_file_and_from_validation(folder: Path) -> None:
    task = create_task("imagenet_glt_glt", folder.parent)
    # Three images that only the balanced file has, and one of two validation images of class 0, attribute 0.
    assert (len(task.metadata), len(task.validation)) == (4, 3)
    rows = torch.cat([split.rows for split in task.splits().values()])
    assert len(rows.unique()) == len(rows)
    assert "Metadata: 2 to 2 images per class." in task.description


def test_a_missing_image_is_named(folder: Path) -> None:
    (folder / "images" / CLASSES[0] / f"{CLASSES[0]}_0.JPEG").unlink()
    with pytest.raises(DatasetNotFoundError, match=rf"1 of 5 images, the first {CLASSES[0]}/{CLASSES[0]}_0\.JPEG"):
        create_task("imagenet_glt_glt", folder.parent)


def test_a_missing_annotation_file_is_named(folder: Path) -> None:
    (folder / BALANCED).unlink()
    with pytest.raises(DatasetNotFoundError, match=BALANCED):
        create_task("imagenet_glt_glt", folder.parent)


def embedded(path: Path, counts: tuple[int, ...], labelled: bool = True) -> list[str]:
    """A file as `icda embed` writes it of a folder: six blobs in each class, the first the largest."""
    generator = np.random.default_rng(0)
    names = ["n0", "n1", "n2"]
    labels = np.repeat(np.arange(len(counts)), counts)
    blobs = generator.choice(6, len(labels), p=[0.3, 0.25, 0.15, 0.12, 0.1, 0.08])
    features = (10 * np.eye(6)[blobs] + generator.normal(0, 0.1, (len(labels), 6))).astype(np.float32)
    ids = [f"{names[label]}/{row:04d}.JPEG" for row, label in enumerate(labels)]
    arrays = {"id": np.array(ids), "skipped": np.array([], dtype="<U1"), "encoder": np.array("e")}
    arrays |= {"encoder_version": np.array("1")}
    if labelled:
        arrays |= {"y": np.array(names)[labels], "y_code": labels, "class_names": np.array(names)}
    write_arrays(path, arrays, [features], features.shape)
    return ids


def test_files_made_anew_are_read_as_tasks(tmp_path: Path, write_image: Any) -> None:
    ids = embedded(tmp_path / "features.npz", (200, 400, 300))
    folder = tmp_path / "imagenet_glt"
    sizes = TailSizes([100, 50, 10], balanced=20, test_gbl=2, test_cbl=1, metadata=1)
    make_imagenet_glt(tmp_path / "features.npz", folder, sizes=sizes)
    for place in ids:
        path = folder / "images" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()  # only asked whether it is there
    task = create_task("imagenet_glt_glt", tmp_path)
    assert task.class_names == ("n1", "n2", "n0")  # by the size of the pool
    assert task.class_counts.tolist() == [100, 50, 10]
    assert torch.bincount(task.test.targets * 3 + task.test.groups).tolist() == [2] * 9
    assert torch.bincount(task.metadata.targets).tolist() == [6] * 3
    assert task.validation is None
    assert create_task("imagenet_glt_alt", tmp_path).class_counts.tolist() == [20] * 3
    assert create_task("imagenet_glt_clt", tmp_path).test.groups.bincount().tolist() == [21, 6, 3]


def test_the_command_says_how_many_images_each_part_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    embedded(tmp_path / "features.npz", (2000, 2000))
    assert main([str(tmp_path / "features.npz"), str(tmp_path / "out"), "--largest", "300", "--ratio", "30"]) == 0
    assert (
        "train_glt: 310 images\ntrain_cbl: 290 images\ntest_cbl: 120 images\ntest_gbl: 120" in capsys.readouterr().out
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} == {LONG_TAILED, BALANCED}


def test_features_without_classes_are_refused(tmp_path: Path) -> None:
    embedded(tmp_path / "features.npz", (20, 20), labelled=False)
    with pytest.raises(ValueError, match="has no classes"):
        make_imagenet_glt(tmp_path / "features.npz", tmp_path)
