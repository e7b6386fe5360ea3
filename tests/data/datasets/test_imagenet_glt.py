import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from icda.data import create_task
from icda.data.bias.generalised_tail import TailSizes
from icda.data.datasets.glt import BALANCED, LONG_TAILED
from icda.data.registry import DatasetNotFoundError
from support import annotate, load_module, write_embedded

TOOL = load_module(Path(__file__).parents[3] / "tools/imagenet_glt.py", "imagenet_glt_tool")

CLASSES = ("n01440764", "n01443537")
FOREIGN = "/data4/imagenet/ILSVRC/Data/CLS-LOC/train"  # where the published file's images lay


@pytest.fixture
def folder(tmp_path, write_image):
    folder = tmp_path / "imagenet_glt"
    folder.mkdir()
    long_tailed = {
        "train": [(0, 0), (0, 0), (0, 1), (0, 2), (1, 0)],
        "val": [(0, 0), (0, 0), (0, 1), (1, 0)],
        "test_lt": [(0, 0)],
        "test_bl": [(0, 0), (1, 0)],
        "test_bbl": [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)],
    }
    balanced = {"train": [(0, 0), (1, 0)], "val": [(1, 2)], "test_bl": [(1, 1)], "test_bbl": [(0, 2), (1, 2)]}
    numbers = itertools.count()
    for file, sets in ((LONG_TAILED, long_tailed), (BALANCED, balanced)):
        keyed = {name: {} for name in sets}
        for name, images in sets.items():
            for label, attribute in images:
                place = f"{CLASSES[label]}/{CLASSES[label]}_{next(numbers)}.JPEG"
                keyed[name][f"{FOREIGN}/{place}"] = label, attribute
                write_image((folder / "images" / place).with_suffix(".png"), (140, 130)).rename(
                    folder / "images" / place
                )
        (folder / file).write_text(json.dumps(annotate(CLASSES, keyed)))
    return folder


@pytest.mark.parametrize(
    ("protocol", "counts", "groups", "tested"),
    [
        ("clt", [4, 1], [0, 0, 1, 2, 0], [(0, 0), (1, 0)]),
        ("glt", [4, 1], [0, 0, 1, 2, 0], [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]),
        ("alt", [1, 1], [0, 0], [(0, 2), (1, 2)]),
    ],
)
def test_protocols_take_the_sets_the_benchmark_says(folder, protocol, counts, groups, tested):
    task = create_task(f"imagenet_glt_{protocol}", folder.parent)
    assert (task.name, task.class_names, task.num_groups) == (f"imagenet_glt_{protocol}", CLASSES, 3)
    assert (task.class_counts.tolist(), task.train.groups.tolist()) == (counts, groups)
    assert list(zip(task.test.targets.tolist(), task.test.groups.tolist(), strict=True)) == tested
    assert task.input_shape == (3, 112, 112)
    assert task.train.batch(torch.tensor([0, 1])).inputs.shape == (2, 3, 112, 112)


def test_metadata_come_from_the_other_file_and_from_validation(folder):
    task = create_task("imagenet_glt_glt", folder.parent)
    # Three images that only the balanced file has, and one of two validation images of class 0, attribute 0.
    assert (len(task.metadata), len(task.validation)) == (4, 3)
    rows = torch.cat([split.rows for split in task.splits().values()])
    assert len(rows.unique()) == len(rows)
    assert "Metadata: 2 to 2 images per class." in task.description


def test_a_missing_image_or_annotation_file_is_named(folder):
    (folder / "images" / CLASSES[0] / f"{CLASSES[0]}_0.JPEG").unlink()
    with pytest.raises(DatasetNotFoundError, match=rf"1 of 5 images, the first {CLASSES[0]}/{CLASSES[0]}_0\.JPEG"):
        create_task("imagenet_glt_glt", folder.parent)
    (folder / BALANCED).unlink()
    with pytest.raises(DatasetNotFoundError, match=BALANCED):
        create_task("imagenet_glt_glt", folder.parent)


def embedded(path, counts, labelled=True):
    """A file as `icda embed` writes it of a folder: six blobs in each class, the first the largest."""
    generator = np.random.default_rng(0)
    names = ["n0", "n1", "n2"]
    labels = np.repeat(np.arange(len(counts)), counts)
    blobs = generator.choice(6, len(labels), p=[0.3, 0.25, 0.15, 0.12, 0.1, 0.08])
    features = (10 * np.eye(6)[blobs] + generator.normal(0, 0.1, (len(labels), 6))).astype(np.float32)
    ids = [f"{names[label]}/{row:04d}.JPEG" for row, label in enumerate(labels)]
    write_embedded(path, features, ids, labels if labelled else None, names)
    return ids


def test_files_made_anew_are_read_as_tasks(tmp_path, write_image):
    ids = embedded(tmp_path / "features.npz", (200, 400, 300))
    folder = tmp_path / "imagenet_glt"
    sizes = TailSizes([100, 50, 10], balanced=20, test_gbl=2, test_cbl=1, metadata=1)
    TOOL.make_imagenet_glt(tmp_path / "features.npz", folder, sizes=sizes)
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


def test_the_command_says_how_many_images_each_part_has(tmp_path, capsys):
    embedded(tmp_path / "features.npz", (2000, 2000))
    assert TOOL.main([str(tmp_path / "features.npz"), str(tmp_path / "out"), "--largest", "300", "--ratio", "30"]) == 0
    assert (
        "train_glt: 310 images\ntrain_cbl: 290 images\ntest_cbl: 120 images\ntest_gbl: 120" in capsys.readouterr().out
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} == {LONG_TAILED, BALANCED}


def test_features_without_classes_are_refused(tmp_path):
    embedded(tmp_path / "features.npz", (20, 20), labelled=False)
    with pytest.raises(ValueError, match="has no classes"):
        TOOL.make_imagenet_glt(tmp_path / "features.npz", tmp_path)
