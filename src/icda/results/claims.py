"""One process at a time in a folder."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from icda.errors import OperationError
from icda.results.files import write_atomically
from icda.results.locks import HAS_LOCKS, lock

OWNER = ".owner"  # who has claimed the folder, for the sentence others get; the lock itself is the system's
_held: dict[
    tuple[int, int], tuple[int, int]
] = {}  # by device and inode of a folder: the process and thread that has it


_handles: set[int] = set()  # open descriptors that hold locks


def _leave_to_parent() -> None:
    """A fork shares its parent's locks, and would keep them after the parent's end."""
    for handle in _handles:
        with contextlib.suppress(OSError):
            os.close(handle)
    _handles.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


class FolderInUseError(OperationError):
    """Another process works in the folder."""


@contextmanager
def claimed(folder: Path, *, wait: bool = True, say: Callable[[str], None] | None = None) -> Iterator[None]:
    """Claim `folder` for this process, which may claim it several times over.

    Where another process has it, `wait` for its end, after one sentence to `say`; without `wait` that sentence is the
    error. The lock is the system's on the folder itself, so that it ends with a process that is killed. A folder that was
    made for the claim and is still empty at its end is taken away again.

    >>> import tempfile
    >>> with claimed(Path(tempfile.mkdtemp()) / "new"), claimed(Path(tempfile.mkdtemp()) / "new"):
    ...     "inside"
    'inside'
    """
    made = _make(folder)
    if not HAS_LOCKS:  # Windows, which opens no folders either
        yield
        return
    handle = _lock(folder, wait, say)
    _handles.add(handle)
    place = _place(os.fstat(handle))
    if first := _held.get(place) != _who():
        _held[place] = _who()
        _sign(folder)
    try:
        yield
    finally:
        if first:
            _held.pop(place, None)
            with contextlib.suppress(OSError):
                (folder / OWNER).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty
            for parent in made:
                parent.rmdir()
        if handle in _handles:  # in a fork it was closed, and the number may be another file's by now
            _handles.discard(handle)
            os.close(handle)


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


def _make(folder: Path) -> list[Path]:
    """Make a folder; those that were made, the innermost first."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _lock(folder: Path, wait: bool, say: Callable[[str], None] | None) -> int:
    """A descriptor of the folder that holds its lock. A folder that was taken away and made again is opened again."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _held.get(_place(os.fstat(handle))) == _who():
                return handle
            _take(handle, folder, wait, say)
            if _is_there(folder, handle):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _take(handle: int, folder: Path, wait: bool, say: Callable[[str], None] | None) -> None:
    ours = lock(handle, wait=False)
    if ours is None:
        sentence = f"{folder} lies on a file system without locks: see to it that only one process writes there."
        warnings.warn(sentence, stacklevel=5)
    if ours is not False:
        return
    if not wait:
        raise FolderInUseError(
            f"{folder} is in use by {owner_of(folder)}: wait until it has ended, end it, or use another --out."
        )
    if say is not None:
        say(f"waiting for {folder}, in use by {owner_of(folder)}")
    lock(handle)


def _is_there(folder: Path, handle: int) -> bool:
    try:
        return _place(folder.stat()) == _place(os.fstat(handle))
    except FileNotFoundError:
        return False


def _who() -> tuple[int, int]:
    """A fork of a process that has claimed a folder is another process."""
    return os.getpid(), threading.get_ident()


def _place(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _sign(folder: Path) -> None:
    """Say who has the folder; one that cannot be written to, such as that of a finished run, is claimed all the same."""
    with contextlib.suppress(OSError, OperationError):
        write_atomically(folder / OWNER, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode("utf-8"))
