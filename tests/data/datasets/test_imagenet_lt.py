import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from icda.data import create_task
from icda.data.datasets import imagenet_lt
from icda.data.datasets.benchmark_files import read_pairs
from icda.data.datasets.imagenet_lt import checked_list
from icda.data.own.reading import read_samples
from icda.data.registry import DatasetNotFoundError
from support import load_module, write_embedded

TOOL = load_module(Path(__file__).parents[3] / "tools/imagenet_lt.py", "imagenet_lt_tool")

COUNTS = {"train": [5, 3, 1], "val": [20, 20, 20], "test": [2, 2, 2]}  # images of each of three classes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Lists and features of three classes in OLTR's and `icda embed`'s layout."""
    monkeypatch.setattr(imagenet_lt, "CLASSES", 3)
    monkeypatch.setattr(imagenet_lt, "COUNTS", {part: sum(counts) for part, counts in COUNTS.items()})
    folder = tmp_path / "imagenet_lt"
    folder.mkdir()
    for part, counts in COUNTS.items():
        labels = np.random.default_rng(0).permutation(np.repeat(np.arange(3), counts))
        place = "val/ILSVRC2012_val_{row:08d}.JPEG" if part == "test" else "train/n{label:08d}/{part}_{row}.JPEG"
        names = [place.format(row=row, label=label, part=part) for row, label in enumerate(labels)]
        lines = [f"{name} {label}\n" for name, label in zip(names, labels, strict=True)]
        (folder / f"ImageNet_LT_{part}.txt").write_text("".join(lines))
        write_features(folder / f"{part}.npz", [f"/data/imagenet/{name}" for name in names], labels)
    imagenet_lt._read.cache_clear()
    return folder


def write_features(path, ids, labels, *, width=4, encoder="e"):
    """Features that tell the row and the label, as `icda embed` writes them."""
    features = np.stack([np.arange(len(ids)), labels, *[np.zeros(len(ids))] * (width - 2)], 1).astype(np.float32)
    write_embedded(path, features, ids, labels, ["0", "1", "2"], encoder)


def test_splits_follow_the_lists_and_half_of_validation_is_metadata(folder):
    task = create_task("imagenet_lt", folder.parent)
    assert task.class_counts.tolist() == COUNTS["train"]
    assert torch.bincount(task.metadata.targets).tolist() == [10] * 3
    assert torch.bincount(task.validation.targets).tolist() == [10] * 3
    assert sorted([*task.metadata.rows.tolist(), *task.validation.rows.tolist()]) == list(range(60))
    assert torch.bincount(task.test.targets).tolist() == COUNTS["test"]
    assert (task.input_kind, task.input_shape, task.default_model) == ("features", (4,), "linear")
    for split in task.splits().values():
        batch = split.batch(torch.arange(len(split)))
        assert torch.equal(batch.inputs[:, 0].long(), split.rows)
        assert torch.equal(batch.inputs[:, 1].long(), split.targets)
    other = create_task("imagenet_lt", folder.parent, 1)
    assert not torch.equal(other.metadata.rows, task.metadata.rows), "the seed decides which images are metadata"


def test_missing_features_come_with_the_commands_that_make_them(folder):
    (folder / "val.npz").unlink()
    with pytest.raises(DatasetNotFoundError) as caught:
        create_task("imagenet_lt", folder.parent)
    message = str(caught.value)
    assert "val.npz is missing" in message
    assert f"python tools/imagenet_lt.py {folder}" in message
    assert f"icda embed {folder / 'val.csv'} --allow-outside --out {folder / 'val.npz'}" in message


def test_a_list_that_is_cut_short_is_refused(folder):
    path = folder / "ImageNet_LT_train.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match=r"ImageNet_LT_train\.txt has 8 images, expected 9"):
        create_task("imagenet_lt", folder.parent)


@pytest.mark.parametrize("line", ["train/n0/a.JPEG", "train/n0/a.JPEG three", "train/n0/a.JPEG 3", "7"])
def test_a_line_without_a_path_and_a_label_is_named(folder, line):
    (folder / "list.txt").write_text(f"train/n0/b.JPEG 0\n{line}\n")
    with pytest.raises(ValueError, match=r"list\.txt, line 2"):
        read_pairs(folder / "list.txt", "012")


@pytest.mark.parametrize(
    ("step", "labels", "changed", "message"),
    [
        (-1, lambda own: own, {}, r"test\.npz, row 0: /i/.* its list has"),
        (1, lambda own: 2 - own, {}, r"test\.npz, row \d: .* of label"),
        (2, lambda own: own, {}, r"test\.npz has 3 rows, its list has 6 images"),
        (1, lambda own: own, {"width": 5}, "different encoders"),
        (1, lambda own: own, {"encoder": "another"}, "different encoders"),
    ],
    ids=["order", "labels", "fewer", "width", "encoder"],
)
def test_features_that_do_not_fit_their_list_are_refused(folder, step, labels, changed, message):
    names, known = checked_list(folder, "test")
    write_features(
        folder / "test.npz", [f"/i/{name}" for name in names[::step]], labels(known.numpy())[::step].copy(), **changed
    )
    with pytest.raises(ValueError, match=message):
        create_task("imagenet_lt", folder.parent)


def test_tables_for_embedding_name_images_in_the_order_of_the_list(folder, capsys):
    images = folder.parent / "images"
    assert TOOL.main([str(folder), str(images)]) == 0
    assert f"icda embed {folder / 'val.csv'} --allow-outside --out {folder / 'val.npz'}" in capsys.readouterr().out
    names, labels = checked_list(folder, "val")
    with (folder / "val.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["image", "label"]
    assert rows[1:] == [[str(images / name), str(label)] for name, label in zip(names, labels.tolist(), strict=True)]
    samples = read_samples(folder / "val.csv", allow_outside=True)
    assert [str(path) for path in samples.inputs] == [str(images / name) for name in names]
