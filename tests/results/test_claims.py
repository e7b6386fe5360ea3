import errno
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import filelock
import pytest

from icda.results.claims import OWNER, FolderInUseError, claimed, owner_of


def hold(folder, seconds, said):
    with claimed(Path(folder)):
        Path(said).write_text("mine")
        time.sleep(seconds)
        Path(said).write_text("done")


@contextmanager
def held_by_another(folder, said, seconds=60.0):
    """Another process holds the folder; its number. It is killed at the end."""
    other = multiprocessing.get_context("fork").Process(target=hold, args=(str(folder), seconds, str(said)))
    other.start()
    try:
        while not said.exists():
            time.sleep(0.01)
        yield other.pid or 0
    finally:
        other.kill()
        other.join()


def test_a_killed_process_leaves_no_claim_behind(tmp_path):
    cell = tmp_path / "cell"
    with held_by_another(cell, tmp_path / "said"):
        pass
    with claimed(cell, wait=False):
        assert owner_of(cell) == f"process {os.getpid()} on {socket.gethostname()}"
    assert list(cell.iterdir()) == []


def test_a_folder_in_use_is_refused_with_the_process_and_its_host(tmp_path):
    cell = tmp_path / "cell"
    with held_by_another(cell, tmp_path / "said") as pid:
        sentence = rf"in use by process {pid} on {socket.gethostname()}: wait"
        with pytest.raises(FolderInUseError, match=sentence), claimed(cell, wait=False):
            pytest.fail("two processes in one folder")
        assert owner_of(cell) == f"process {pid} on {socket.gethostname()}"


def test_a_second_process_waits_for_the_first_and_says_for_whom(tmp_path):
    sentences: list[str] = []
    cell, said = tmp_path / "cell", tmp_path / "said"
    with held_by_another(cell, said, seconds=0.3) as pid, claimed(cell, say=sentences.append):
        assert said.read_text() == "done"
    assert len(sentences) == 1
    assert f"in use by process {pid} on" in sentences[0]


def test_one_process_may_claim_a_folder_twice_and_two_threads_may_not(tmp_path):
    with claimed(tmp_path), claimed(tmp_path, wait=False):
        assert refused_elsewhere(tmp_path)
        assert (tmp_path / OWNER).exists()
    assert not (tmp_path / OWNER).exists()


def test_a_folder_made_for_a_claim_that_came_to_nothing_is_gone_again(tmp_path):
    with claimed(tmp_path / "a" / "b"):
        pass
    assert list(tmp_path.iterdir()) == []
    with claimed(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "kept").write_text("")
    assert (tmp_path / "a" / "b" / "kept").exists()


def test_a_folder_that_was_made_again_while_waiting_is_the_one_claimed(tmp_path):
    cell, said = tmp_path / "cell", tmp_path / "said"
    with held_by_another(cell, said, seconds=0.5):
        (cell / OWNER).unlink()
        cell.rmdir()
        with claimed(cell):
            (cell / "mine").write_text("")
            assert refused_elsewhere(cell)


def refused_elsewhere(folder):
    """Whether a thread of its own, to which the claims of this one are another's, cannot claim the folder."""
    refused: list[Exception] = []

    def try_it() -> None:
        try:
            with claimed(folder, wait=False):
                pass
        except FolderInUseError as error:
            refused.append(error)

    thread = threading.Thread(target=try_it)
    thread.start()
    thread.join()
    return bool(refused)


def test_a_folder_nobody_may_write_to_can_be_claimed_to_be_read(tmp_path, monkeypatch):
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(filelock.FileLock, "acquire", read_only)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with claimed(tmp_path):
            assert owner_of(tmp_path) == "another process"
    monkeypatch.setattr(os, "access", lambda *_: True)
    with pytest.warns(UserWarning, match="only one process"), claimed(tmp_path):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_does_not_keep_the_claim_of_a_process_that_is_killed(tmp_path):
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from icda.results.claims import claimed\n"
        "end, start = os.pipe()\n"
        "with claimed(Path(sys.argv[1])):\n"
        "    if os.fork() == 0:\n"
        "        os.write(start, b'x')\n"  # the fork has begun, so it has let go of what it must
        "        time.sleep(60)\n"
        "    os.read(end, 1)\n"
        "    print('claimed', flush=True)\n"
        "    time.sleep(60)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        owner.stdout.readline()
        owner.kill()
        owner.wait()
        with claimed(tmp_path, wait=False):
            pass
    finally:
        os.killpg(owner.pid, signal.SIGKILL)
