"""One process at a time in a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Wait until no other process has claimed `folder`, and claim it.

    The lock is the system's on the folder itself: it leaves no file behind, and ends with a process that is killed.

    >>> import tempfile
    >>> with claimed(Path(tempfile.mkdtemp()) / "new"):
    ...     "inside"
    'inside'
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
