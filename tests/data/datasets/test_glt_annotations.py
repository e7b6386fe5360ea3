import json
from pathlib import Path
from typing import Any

import pytest
import torch

from icda.data.datasets.glt import AnnotatedSet, read_annotations, write_annotations


@pytest.fixture
def content(annotate: Any) -> dict[str, Any]:
    """A file in the layout of the benchmark: labels are strings there, attributes and frequencies are numbers."""
    sets = {
        "train": {"/a/n1/x.JPEG": (0, 0), "/a/n2/y.JPEG": (1, 2)},
        "val": {"/a/n1/v.JPEG": (0, 1)},
        "test_bl": {"/a/n1/b.JPEG": (0, 0)},
        "test_bbl": {"/a/n2/c.JPEG": (1, 1)},
    }
    return annotate(["n1", "n2"], sets)


def base_name(key: str, _: Any) -> str:
    return key.rpartition("/")[2]


def test_sets_are_read_with_the_names_that_locate_gives(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps(content))
    known = read_annotations(path, base_name)
    assert known.class_names == ("n1", "n2")
    assert known.sets["train"].names == ["x.JPEG", "y.JPEG"]
    assert known.sets["train"].targets.tolist() == [0, 1]
    assert known.sets["train"].attributes.tolist() == [0, 2]
    assert len(known.sets["test_lt"]) == 0
    assert known.used() == {"x.JPEG", "y.JPEG", "v.JPEG", "b.JPEG", "c.JPEG"}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    sets = {
        "train": AnnotatedSet(["n1/a", "n2/b"], torch.tensor([0, 1]), torch.tensor([2, 0])),
        "test_bl": AnnotatedSet(["n1/c"], torch.tensor([0]), torch.tensor([1])),
        "metadata": AnnotatedSet(["n2/d"], torch.tensor([1]), torch.tensor([1])),
    }
    path = tmp_path / "below" / "annotations.json"
    write_annotations(path, ("n1", "n2"), sets, [0, 2])
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
def test_a_spoilt_file_is_refused(tmp_path: Path, content: Any, old: str, new: str, message: str) -> None:
    path, text = tmp_path / "annotations.json", json.dumps(content)
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ValueError, match=message):
        read_annotations(path, base_name)
