import json
from pathlib import Path
from typing import Any

import pytest
import torch

from icda.data import create_task
from icda.data.datasets.glt import FOLDERS

CLASSES = ("person", "dog")
FOREIGN = "/data4/coco_glt"  # where the scripts of the benchmark wrote by default


@pytest.fixture
def root(tmp_path: Path, write_image: Any, annotate: Any) -> Path:
    """Two folders as mscoco_glt_crop.py writes them: sets map an object's key to its (class, attribute)."""
    long_tailed = {
        "train": {"11": (0, 0), "12": (0, 1), "13": (1, 0)},
        "val": {"21": (0, 0), "22": (0, 0), "23": (1, 2)},
        "test_lt": {"31": (0, 0)},
        "test_bl": {"41": (0, 0), "42": (1, 0)},
        "test_bbl": {"51": (0, 2), "52": (1, 1), "53": (1, 2)},
    }
    balanced = {
        "train": {"11": (0, 0), "61": (1, 1)},
        "val": {"62": (1, 0)},
        "test_bl": {"41": (0, 0)},
        "test_bbl": {"51": (0, 2), "52": (1, 1)},
    }
    for name, sets in zip(FOLDERS, (long_tailed, balanced), strict=True):
        folder, content = tmp_path / "mscoco_glt" / name, annotate(CLASSES, sets, int) | {"key2path": {}}
        for part, objects in sets.items():
            paths = {key: f"{FOREIGN}/{name}/images/{key}.jpg" for key in objects}
            content[part] |= {"path": paths, "attribute_dist": {"0": [1.0, 2.0]}}
            for key in objects:
                write_image(folder / "images" / f"{key}.jpg", (120, 120))
        (folder / "annotation.json").write_text(json.dumps(content))
    return tmp_path


@pytest.mark.parametrize(
    ("protocol", "counts", "test"), [("clt", [2, 1], [0, 1]), ("glt", [2, 1], [0, 1, 1]), ("alt", [1, 1], [0, 1])]
)
def test_protocols_take_the_sets_the_benchmark_says(
    root: Path, protocol: str, counts: list[int], test: list[int]
) -> None:
    task = create_task(f"mscoco_glt_{protocol}", root)
    assert task.class_counts.tolist() == counts
    assert task.test.targets.tolist() == test
    assert (task.class_names, task.group_names) == (CLASSES, ("common", "middling", "rare"))
    assert task.test.batch(torch.tensor([0])).inputs.shape == (1, 3, 112, 112)


def test_metadata_from_the_other_folder_lie_in_that_folder(root: Path) -> None:
    task = create_task("mscoco_glt_glt", root)
    paths = [task.metadata.source.paths[row] for row in task.metadata.rows.tolist()]  # type: ignore[attr-defined]
    # 61 and 62 are only in the balanced folder; 21 or 22 is one half of the validation cell (0, 0).
    assert [path.parent.parent.name for path in paths] == [FOLDERS[1], FOLDERS[1], FOLDERS[0]]
    assert {path.stem for path in paths[:2]} == {"61", "62"}
    assert paths[2].stem in {"21", "22"}


def test_an_object_without_a_path_is_named(root: Path) -> None:
    path = root / "mscoco_glt" / FOLDERS[0] / "annotation.json"
    content = json.loads(path.read_text())
    del content["train"]["path"]["12"]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="no path for the object 12"):
        create_task("mscoco_glt_glt", root)
