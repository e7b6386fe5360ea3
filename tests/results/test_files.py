"""Files and folders that are whole or not there."""

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from icda.results.claims import NEXT, OWNER, place_of, renewed, settle
from icda.results.files import UnwritableError, replacing, replacing_text, write_atomically

NAMES = ("one", "two", "gone")


def test_a_full_disk_is_one_sentence_with_the_name_of_the_file(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")

    def write() -> None:
        with replacing_text(path) as file:
            file.write("new")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UnwritableError, match=r"could not write .*table\.csv: No space left.*good one is untouched"):
        write()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.csv"]


def test_what_cannot_be_read_is_not_said_to_be_unwritable(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"elsewhere"), replacing(tmp_path / "out"):
        (tmp_path / "elsewhere/in").read_bytes()


def test_a_link_in_the_place_of_an_output_is_replaced_and_its_target_stays(tmp_path):
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "out.csv").symlink_to(tmp_path / "victim")
    write_atomically(tmp_path / "out.csv", b"new")
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / "out.csv").read_text() == "new"
    assert not (tmp_path / "out.csv").is_symlink()


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    write_atomically(pipe, b"through")
    assert reader.communicate(timeout=60)[0] == b"through"
    assert pipe.is_fifo()


def fill(folder, content):
    with renewed(folder, NAMES) as aside:
        for name in NAMES[:2]:
            (aside / name).write_text(f"{name} {content}")


def test_files_of_a_folder_are_replaced_together_and_foreign_ones_stay(tmp_path):
    for name in (*NAMES, "mine"):
        (tmp_path / name).write_text("old")
    fill(tmp_path, "new")
    held = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert held == {"one": "one new", "two": "two new", "mine": "old"}


def test_a_fault_while_new_files_are_written_leaves_the_old_ones(tmp_path):
    fill(tmp_path, "old")

    def fail() -> None:
        with renewed(tmp_path, NAMES) as aside:
            (aside / "one").write_text("one new")
            raise OSError("full")

    with pytest.raises(OSError, match=r"full"):
        fail()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
    assert (tmp_path / "one").read_text() == "one old"


def test_killed_at_any_step_a_folder_holds_the_old_files_or_the_new_ones(tmp_path, monkeypatch):
    """Each operation on files in turn is the last one before the process dies."""

    class Killed(BaseException):
        pass

    states = set()
    for last in range(40):
        folder = tmp_path / str(last)
        fill(folder, "old")
        left = iter(range(last))

        def until(real: Callable[..., object], left: Iterator[int] = left) -> Callable[..., object]:
            def call(*arguments: object, **named: object) -> object:
                if next(left, None) is None:
                    raise Killed
                return real(*arguments, **named)

            return call

        with monkeypatch.context() as patch:
            for name in ("rename", "replace", "unlink", "touch", "write_text"):
                patch.setattr(Path, name, until(getattr(Path, name)))
            patch.setattr("shutil.rmtree", lambda *_, **__: None)  # a killed process tidies nothing up
            with contextlib.suppress(Killed):
                fill(folder, "new")
        seen = tuple(place_of(folder, name).read_text().split()[1] for name in NAMES[:2])
        assert seen in (("old", "old"), ("new", "new")), last
        states.add(seen)
        settle(folder)
        held = {path.name: path.read_text().split()[1] for path in folder.iterdir() if path.name != OWNER}
        assert held == dict(zip(NAMES[:2], seen, strict=True)), last
    assert len(states) == 2


def test_two_processes_do_not_mix_their_files(tmp_path):
    code = (
        "import sys; from pathlib import Path; from icda.results.claims import renewed\n"
        "for _ in range(30):\n"
        "    with renewed(Path(sys.argv[1]), ('one', 'two')) as aside:\n"
        "        [(aside / name).write_text(sys.argv[2] * 1000) for name in ('one', 'two')]\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), word]) for word in "ab"]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text()
    assert not (tmp_path / NEXT).exists()
