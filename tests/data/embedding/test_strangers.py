"""A stranger's features file or folder shows none of your files."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from icda.data.embedding.origin import digest_of, find_inputs
from icda.data.own.reading import read_samples
from icda.data.own.tasks import folder_task
from icda.errors import InputError
from icda.serving.fit_data import Asked, read_fit_data

SECRET = "my private line"


@pytest.fixture
def stranger(tmp_path):
    """A folder beside files of ours."""
    (tmp_path / "private.csv").write_text(f"text,label\n{SECRET},a\n{SECRET},b\n")
    (tmp_path / "theirs").mkdir()
    return tmp_path / "theirs"


def pictures(folder, count=3):
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number}.png")
    return folder


def test_a_noted_table_outside_the_file_s_folder_is_not_shown(stranger, monkeypatch):
    monkeypatch.chdir(stranger.parent)
    known = {"source": "../private.csv", "source_sha256": digest_of(stranger.parent / "private.csv")}
    assert find_inputs(["0", "1"], known, stranger / "s.npz") is None


def test_a_table_beside_the_file_is_shown_only_if_it_is_the_one_that_was_embedded(stranger):
    (stranger.parent / "private.csv").rename(stranger / "private.csv")
    known = {"source": "private.csv", "source_column": "text"}
    assert find_inputs(["0", "1"], known, stranger / "s.npz") is None
    assert find_inputs(["0", "1"], {**known, "source_sha256": "0" * 64}, stranger / "s.npz") is None
    same = {**known, "source_sha256": digest_of(stranger / "private.csv")}
    shown = find_inputs(["0", "1"], same, stranger / "s.npz")
    assert list(shown.inputs) == [SECRET, SECRET]
    assert find_inputs(["0", "1"], known, stranger / "s.npz", given=stranger / "private.csv") is not None


def test_the_page_of_an_audit_does_not_hold_private_lines(icda, stranger, monkeypatch):
    monkeypatch.chdir(stranger.parent)
    generator, y = np.random.default_rng(0), np.arange(60) % 2
    X = generator.normal(size=(60, 3)) + y[:, None]
    Path("private.csv").write_text("text,label\n" + "".join(f"{SECRET} {k},a\n" for k in range(60)))
    np.savez("theirs/s.npz", features=X, y=y, id=np.arange(60).astype(str), source="../private.csv", encoder="minilm")
    answer = icda("audit", "theirs/s.npz", "--out", "out").worked()
    assert SECRET not in Path("out/audit.html").read_text()
    assert "--show" in answer.err


def test_images_outside_the_file_s_folder_are_not_shown(stranger, monkeypatch):
    monkeypatch.chdir(stranger.parent)
    pictures(stranger.parent / "private")
    assert find_inputs(["0.png"], {"source": "../private"}, stranger / "s.npz") is None
    shown = find_inputs(["../../private/0.png"], {"source": "."}, stranger / "s.npz")
    assert not any(Path(path).is_file() for path in shown.inputs)


@pytest.mark.parametrize("of", ["file", "class folder"])
def test_links_out_of_a_folder_are_refused_unless_it_is_trusted(stranger, of):
    private = pictures(stranger.parent / "private")
    pictures(stranger / "a")
    if of == "file":
        pictures(stranger / "b")
        (stranger / "b" / "link.png").symlink_to(private / "0.png")
    else:
        (stranger / "b").symlink_to(private, target_is_directory=True)
    for read in (read_samples, folder_task, lambda path: read_samples(path, unlabelled=True)):
        if of == "class folder" and read not in (read_samples, folder_task):
            continue  # below a folder without classes linked folders are not entered
        with pytest.raises(InputError, match=r"is a link to .*private.*--allow-outside"):
            read(stranger)
    with pytest.raises(InputError, match=r"--allow-outside"):
        read_fit_data(stranger, Asked(), stranger.parent / "model")
    assert len(read_samples(stranger, allow_outside=True)) > 3
    assert folder_task(stranger, allow_outside=True).num_classes == 2


def test_links_inside_a_folder_are_followed(stranger):
    pictures(stranger / "a")
    pictures(stranger / "b")
    (stranger / "b" / "again.png").symlink_to(Path(os.pardir) / "a" / "0.png")
    assert len(read_samples(stranger)) == 7
