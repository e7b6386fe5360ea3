import tarfile

import pytest
import torch

from icda.data import create_task
from icda.data.datasets.cad_imdb import FILES
from icda.data.registry import DatasetNotFoundError
from icda.data.sources import TextArray

PAIRS = {"train": 6, "dev": 60, "test": 4}


def write(folder, spoil=""):
    """A small set of the published form; revised texts have a blank line, originals a quoted cell."""
    for part, count in PAIRS.items():
        path = folder / FILES[part]
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = ["Sentiment\tText\tbatch_id"]
        for number in range(count):
            labels = ("Positive", "Negative") if number % 2 else ("Negative", "Positive")
            lines.append(f'{labels[0]}\t"{part} {number} ""old""<br /><br />end"\t{number}')
            lines.append(f"{labels[1]}\t{part} {number} new \t{number}")
        path.write_text("\n".join(lines) + spoil + "\n", encoding="utf-8")
    return folder


def texts(task, split):
    part = task.splits()[split]
    assert isinstance(part.source, TextArray)
    return [part.source.texts[row] for row in part.rows.tolist()]


def check_small(task):
    assert texts(task, "train") == [f'train {number} "old" end' for number in range(6)]
    assert task.train.targets.tolist() == [0, 1, 0, 1, 0, 1]
    expected = [text for number in range(4) for text in (f'test {number} "old" end', f"test {number} new")]
    assert texts(task, "test") == expected
    assert task.test.groups.tolist() == [0, 1] * 4
    assert task.train.groups is task.validation.groups is None
    assert task.group_names == ("original", "revised")
    assert task.test.targets.tolist() == [0, 1, 1, 0] * 2


def test_a_folder_and_the_archive_give_the_same_task(tmp_path):
    write(tmp_path / "one" / "cad")
    packed = tmp_path / "two" / "text.tar.xz"
    packed.parent.mkdir()
    with tarfile.open(packed, "w:xz") as archive:
        archive.add(tmp_path / "one" / "cad", "text/cad")
    unpacked, archived = (create_task("cad_imdb", tmp_path / name) for name in ("one", "two"))
    check_small(unpacked)
    check_small(archived)
    assert unpacked.data_hash == archived.data_hash


def test_metadata_are_whole_pairs_that_validation_has_not(tmp_path):
    write(tmp_path / "cad")
    task = create_task("cad_imdb", tmp_path)
    assert torch.bincount(task.metadata.targets).tolist() == [50, 50]
    numbers = {"old": [], "new": []}
    for text in texts(task, "metadata"):
        numbers["new" if text.endswith("new") else "old"].append(text.split()[1])
    assert numbers["old"] == numbers["new"]
    kept = {text.split()[1] for text in texts(task, "validation")}
    assert all(text.endswith("end") for text in texts(task, "validation"))
    assert kept.isdisjoint(numbers["old"])
    assert kept | set(numbers["old"]) == {str(number) for number in range(60)}
    other = create_task("cad_imdb", tmp_path, data_seed=1)
    assert texts(other, "metadata") != texts(task, "metadata")
    assert texts(other, "train") == texts(task, "train")


def test_the_published_files(real_data):
    task = create_task("cad_imdb", real_data)
    assert {name: len(split) for name, split in task.splits().items()} == {
        "train": 1707,
        "validation": 195,
        "test": 976,
        "metadata": 100,
    }
    assert task.class_counts.tolist() == [851, 856]
    assert torch.bincount(task.test.groups).tolist() == [488, 488]
    assert not any("<br" in text or "\n" in text for text in texts(task, "test"))


def test_missing_and_broken_files_are_named(tmp_path):
    with tarfile.open(tmp_path / "text.tar.xz", "w:xz"):
        pass
    with pytest.raises(DatasetNotFoundError, match=r"lacks cad/sentiment/combined/paired/train_paired.tsv"):
        create_task("cad_imdb", tmp_path)
    write(tmp_path / "odd" / "cad", "\nPositive\talone\t99")
    with pytest.raises(ValueError, match="13 rows, expected pairs"):
        create_task("cad_imdb", tmp_path / "odd")
    write(tmp_path / "same" / "cad", "\nPositive\tone\t99\nPositive\tother\t99")
    with pytest.raises(
        ValueError, match=r"rows 13 and 14: expected an original and its revision.*got 99 Positive, 99 Pos"
    ):
        create_task("cad_imdb", tmp_path / "same")
