from pathlib import Path

import numpy as np
import pytest

from icda.data.datasets.benchmark_files import check_images, numbered, shares
from icda.data.own.table import read_table
from icda.data.registry import DatasetNotFoundError


def test_only_the_columns_asked_for_come_and_those_that_are_missing_are_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(',text,y,z\n0,"one, two",1,9\n\n1,"line\nbreak ""quoted""",0,8\n', encoding="utf-8")
    assert read_table(path, ("y", "text")).columns == {"y": ["1", "0"], "text": ["one, two", 'line\nbreak "quoted"']}
    with pytest.raises(ValueError, match=r"a\.csv lacks x: its columns are , text, y, z"):
        read_table(path, ("y", "x"))
    path.write_text("")
    with pytest.raises(ValueError, match="lacks y, z: its columns are none"):
        read_table(path, ("y", "z"))


def test_words_become_numbers_and_empty_cells_are_what_the_caller_says():
    known = {"train": 0, "val": 1}
    assert numbered(Path("a.csv"), "split", ["val", " train"], known).tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"a.csv: split holds 'dev', expected train, val"):
        numbered(Path("a.csv"), "split", ["val", "dev"], known)
    assert np.array_equal(shares(Path("a.csv"), "black", ["0.5", "", "1"], empty="0"), [0.5, 0.0, 1.0])
    for cells in (["0.5", " "], ["yes"]):
        with pytest.raises(ValueError, match=r"a\.csv: toxicity must hold a number in each row"):
            shares(Path("a.csv"), "toxicity", cells)


def test_images_that_are_missing_are_counted_and_the_publisher_named(tmp_path, write_image):
    write_image(tmp_path / "one" / "a.jpg")
    assert check_images(tmp_path, "Birds", ["one/a.jpg"], "a lab") == [tmp_path / "one" / "a.jpg"]
    with pytest.raises(DatasetNotFoundError, match=r"Birds in .* 2 of 3 images, the first one/b.jpg, missing.*a lab"):
        check_images(tmp_path, "Birds", ["one/a.jpg", "one/b.jpg", "two/c.jpg"], "a lab")
