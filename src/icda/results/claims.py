"""One process at a time in a folder, and several files of it that are replaced together."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from icda.errors import OperationError

if TYPE_CHECKING:
    from filelock import BaseFileLock

OWNER = ".owner"  # the file that is locked; says who has the folder, for the sentence others get


class FolderInUseError(OperationError):
    """Another process works in the folder."""


@contextmanager
def claimed(folder: Path, *, wait: bool = True, say: Callable[[str], None] | None = None) -> Iterator[None]:
    """Claim `folder` for this process and thread, which may claim it several times over.

    Where another has it, `wait` for its end, after one sentence to `say`; without `wait` that sentence is the error. The
    lock is the system's, so that it ends with a process that is killed. A folder that was made for the claim and is still
    empty at its end is taken away again.

    >>> import tempfile
    >>> with claimed(Path(tempfile.mkdtemp()) / "new"), claimed(Path(tempfile.mkdtemp()) / "new"):
    ...     "inside"
    'inside'
    """
    from filelock import FileLock

    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.resolve() / OWNER
    lock = FileLock(path, is_singleton=True)
    if ours := _acquire(lock, folder, wait, say):
        with contextlib.suppress(OSError):
            path.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}), encoding="utf-8")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # a folder that is not empty, or gone
            if ours and lock.lock_counter == 1:
                path.unlink(missing_ok=True)  # who waits for it opens another one
            for parent in made:
                parent.rmdir()
        if ours:
            lock.release()


def owner_of(folder: Path) -> str:
    """The process that has claimed a folder, in words.

    >>> owner_of(Path("nowhere"))
    'another process'
    """
    try:
        said = json.loads((folder / OWNER).read_text(encoding="utf-8"))
        return f"process {int(said['pid'])} on {said['host']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has just come or gone
        return "another process"


def _acquire(lock: BaseFileLock, folder: Path, wait: bool, say: Callable[[str], None] | None) -> bool:
    """Whether the folder has a lock and it is ours now; one that nobody may write to needs none."""
    from filelock import Timeout

    blocking = False
    while True:
        try:
            lock.acquire(blocking=blocking, poll_interval=0.02)
            return True
        except Timeout:
            if not wait:
                raise FolderInUseError(
                    f"{folder} is in use by {owner_of(folder)}: wait until it has ended, end it, or use another --out."
                ) from None
            if say is not None:
                say(f"waiting for {folder}, in use by {owner_of(folder)}")
            blocking = True
        except FileNotFoundError:  # taken away by whoever had made it
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if os.access(folder, os.W_OK):
                sentence = (
                    f"{folder} cannot be locked ({error.strerror}): see to it that only one process writes there."
                )
                warnings.warn(sentence, stacklevel=4)
            return False


NEXT = ".next"  # folder of new files that are whole, on their way to their places


@contextmanager
def renewed(folder: Path, names: Collection[str]) -> Iterator[Path]:
    """A folder for new files, which take the place of the old ones all together or not at all.

    Old files of these `names` that have no successor go. All stay until every new one is on the disk. Then the folder of
    the new ones gets the name `NEXT`: from that moment on they count, and moving them to their places is finished by
    whoever comes next if this process is killed.
    """
    with claimed(folder):
        settle(folder)
        aside = Path(tempfile.mkdtemp(suffix=".part", prefix=".", dir=folder))
        try:
            yield aside
            for name in names:
                if not (aside / name).exists():
                    (aside / name).touch()  # an old file of this name goes
            aside.rename(folder / NEXT)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        settle(folder)


def settle(folder: Path) -> None:
    """Move new files that are whole to their places, and remove what killed processes left half written."""
    for scrap in folder.glob(".*.part"):
        if scrap.is_dir() and not scrap.is_symlink():
            shutil.rmtree(scrap, ignore_errors=True)
    aside = folder / NEXT
    if not aside.is_dir() or aside.is_symlink():
        return
    for path in sorted(aside.iterdir()):
        if path.stat().st_size:
            path.replace(folder / path.name)
        else:
            (folder / path.name).unlink(missing_ok=True)
            path.unlink()
    shutil.rmtree(aside)


def place_of(folder: Path, name: str) -> Path:
    """Where the newest whole file of this name stands."""
    aside = folder / NEXT / name
    return aside if aside.is_file() else folder / name
