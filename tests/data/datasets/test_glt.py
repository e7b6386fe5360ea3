"""The GLT benchmark: its annotation files, the metadata chosen from them, and MSCOCO-GLT."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from icda.data import create_task
from icda.data.datasets.glt import (
    FOLDERS,
    METADATA_PER_ATTRIBUTE,
    AnnotatedSet,
    Annotations,
    choose_metadata,
    read_annotations,
    shorter_side_square,
)
from support import annotate, load_module

TOOL = load_module(Path(__file__).parents[3] / "tools/imagenet_glt.py", "imagenet_glt_tool")


@pytest.fixture
def content():
    """A file in the layout of the benchmark: labels are strings there, attributes and frequencies are numbers."""
    sets = {
        "train": {"/a/n1/x.JPEG": (0, 0), "/a/n2/y.JPEG": (1, 2)},
        "val": {"/a/n1/v.JPEG": (0, 1)},
        "test_bl": {"/a/n1/b.JPEG": (0, 0)},
        "test_bbl": {"/a/n2/c.JPEG": (1, 1)},
    }
    return annotate(["n1", "n2"], sets)


def base_name(key, _):
    return key.rpartition("/")[2]


def test_sets_are_read_with_the_names_that_locate_gives(tmp_path, content):
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps(content))
    known = read_annotations(path, base_name)
    assert known.class_names == ("n1", "n2")
    assert known.sets["train"].names == ["x.JPEG", "y.JPEG"]
    assert known.sets["train"].targets.tolist() == [0, 1]
    assert known.sets["train"].attributes.tolist() == [0, 2]
    assert len(known.sets["test_lt"]) == 0


def test_what_is_written_is_read_back(tmp_path):
    sets = {
        "train": AnnotatedSet(["n1/a", "n2/b"], torch.tensor([0, 1]), torch.tensor([2, 0])),
        "test_bl": AnnotatedSet(["n1/c"], torch.tensor([0]), torch.tensor([1])),
        "metadata": AnnotatedSet(["n2/d"], torch.tensor([1]), torch.tensor([1])),
    }
    path = tmp_path / "below" / "annotations.json"
    TOOL.write_annotations(path, ("n1", "n2"), sets, [0, 2])
    known = read_annotations(path, lambda key, _: key)
    assert known.class_names == ("n1", "n2")
    for name, part in known.sets.items():
        wanted = sets.get(name, AnnotatedSet([], torch.tensor([]), torch.tensor([])))
        assert part.names == wanted.names
        assert part.targets.tolist() == wanted.targets.tolist()
        assert part.attributes.tolist() == wanted.attributes.tolist()
    written = json.loads(path.read_text())
    assert written["train"]["frequency"] == {"n1/a": 0, "n2/b": 2}
    assert written["train"]["label"] == {"n1/a": "0", "n2/b": "1"}
    assert written["cat2id"] == {"n1": "0", "n2": "1"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"test_bbl"', '"other"', "lacks test_bbl"),
        (
            '"attribute": {"/a/n1/v.JPEG": 1}',
            '"other": {}',
            "the set val is not as the benchmark writes it .*attribute",
        ),
        (', "/a/n2/y.JPEG": 2', "", r"the set train is not as .*/a/n2/y\.JPEG"),
        (
            '"attribute": {"/a/n1/x.JPEG": 0',
            '"attribute": {"/a/n1/x.JPEG": 3',
            r"attribute .* train must lie in 0\.\.2",
        ),
        ('"/a/n1/x.JPEG": "0"', '"/a/n1/x.JPEG": "cat"', "the set train is not as .*'cat'"),
        ("/a/n1/b.JPEG", "/b/n1/x.JPEG", "x.JPEG is in train and in test_bl"),
        ('"1": "n2"', '"2": "n2"', r"must number the classes 0\.\.1"),
        ("}}}", "", "cut short"),
    ],
)
def test_a_spoilt_file_is_refused(tmp_path, content, old, new, message):
    path, text = tmp_path / "annotations.json", json.dumps(content)
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ValueError, match=message):
        read_annotations(path, base_name)


def annotated(names, label, attribute):
    return AnnotatedSet(names, torch.full((len(names),), label), torch.full((len(names),), attribute))


def joined(*parts):
    return AnnotatedSet(
        [name for part in parts for name in part.names],
        torch.cat([part.targets for part in parts]),
        torch.cat([part.attributes for part in parts]),
    )


def file(class_names, **sets):
    nothing = annotated([], 0, 0)
    return Annotations(Path("file.json"), class_names, {"train": nothing, "val": nothing} | sets)


def named(prefix, count):
    return [f"{prefix}{number}" for number in range(count)]


OWN = file(
    ("dog", "cat"),
    train=annotated(named("shared", 5), 0, 0),
    val=joined(annotated(named("own dog ", 9), 0, 0), annotated(named("own cat ", 60), 1, 2)),
    test_bbl=annotated(["tested"], 1, 1),
)
# The other file numbers the classes the other way round.
OTHER = file(
    ("cat", "dog"),
    train=joined(
        annotated([*named("shared", 5), *named("other dog ", 30)], 1, 0), annotated(["tested", "other cat"], 0, 1)
    ),
    val=annotated(["other cat in val"], 0, 1),
    test_bl=annotated(["other test"], 0, 1),
)


def test_metadata_come_from_images_of_the_other_file_first_and_validation_gives_at_most_half():
    unused, lent, rest = choose_metadata(OWN, OTHER, seed=0)
    cells = list(zip(unused.names, unused.targets.tolist(), unused.attributes.tolist(), strict=True))
    dogs = [name for name, target, attribute in cells if (target, attribute) == (0, 0)]
    assert len(dogs) == METADATA_PER_ATTRIBUTE
    assert all(name.startswith("other dog") for name in dogs)
    assert sorted(name for name, target, _ in cells if target == 1) == ["other cat", "other cat in val"]
    # Dogs of attribute 0 have their twenty; cats of attribute 2 are only in validation.
    assert len(lent) == METADATA_PER_ATTRIBUTE
    assert all(name.startswith("own cat") for name in lent.names)
    assert sorted([*lent.names, *rest.names]) == sorted(OWN.sets["val"].names)
    # Neither trained nor tested images become metadata, and the seed decides the choice.
    taken = set(unused.names) | set(lent.names)
    assert not taken & {*OWN.sets["train"].names, *OWN.sets["test_bbl"].names, *OTHER.sets["test_bl"].names}
    again, other = (choose_metadata(OWN, OTHER, seed=seed) for seed in (0, 1))
    assert unused.names == again[0].names != other[0].names
    assert lent.names != other[1].names


def test_a_short_cell_of_validation_gives_half_and_files_of_different_classes_are_refused():
    _, lent, rest = choose_metadata(OWN, file(("dog", "cat")), seed=0)
    assert sum(name.startswith("own dog") for name in lent.names) == 4
    assert sum(name.startswith("own dog") for name in rest.names) == 5
    with pytest.raises(ValueError, match="different classes"):
        choose_metadata(OWN, file(("dog", "bird")), seed=0)


@pytest.mark.parametrize("size", [(128, 128), (256, 128), (128, 200), (20, 30), (1000, 50)])
def test_prepared_images_are_square(size):
    assert shorter_side_square(Image.new("RGB", size), 112).size == (112, 112)


def test_the_middle_of_an_image_whose_shorter_side_is_128_is_kept_as_it_is():
    pixels = np.random.default_rng(0).integers(0, 256, (128, 200, 3), dtype=np.uint8)
    cut = np.asarray(shorter_side_square(Image.fromarray(pixels), 112))
    assert np.array_equal(cut, pixels[8:120, 44:156])


CLASSES = ("person", "dog")
FOREIGN = "/data4/coco_glt"  # where the scripts of the benchmark wrote by default


@pytest.fixture
def root(tmp_path, write_image):
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
def test_protocols_take_the_sets_the_benchmark_says(root, protocol, counts, test):
    task = create_task(f"mscoco_glt_{protocol}", root)
    assert task.class_counts.tolist() == counts
    assert task.test.targets.tolist() == test
    assert (task.class_names, task.group_names) == (CLASSES, ("common", "middling", "rare"))
    assert task.test.batch(torch.tensor([0])).inputs.shape == (1, 3, 112, 112)


def test_metadata_from_the_other_folder_lie_in_that_folder(root):
    task = create_task("mscoco_glt_glt", root)
    paths = [task.metadata.source.paths[row] for row in task.metadata.rows.tolist()]
    # 61 and 62 are only in the balanced folder; 21 or 22 is one half of the validation cell (0, 0).
    assert [path.parent.parent.name for path in paths] == [FOLDERS[1], FOLDERS[1], FOLDERS[0]]
    assert {path.stem for path in paths[:2]} == {"61", "62"}
    assert paths[2].stem in {"21", "22"}


def test_an_object_without_a_path_is_named(root):
    path = root / "mscoco_glt" / FOLDERS[0] / "annotation.json"
    content = json.loads(path.read_text())
    del content["train"]["path"]["12"]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="no path for the object 12"):
        create_task("mscoco_glt_glt", root)
