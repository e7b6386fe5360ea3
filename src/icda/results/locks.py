"""The system's locks on open files: they end with the process, however it ends. Windows has none of them."""

from __future__ import annotations

try:
    import fcntl
except ImportError:  # Windows
    HAS_LOCKS = False
else:
    HAS_LOCKS = True


def lock(handle: int, wait: bool = True) -> bool:
    """Lock an open file; whether it is ours now, and not another's or on a file system without locks.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     lock(file.fileno(), wait=False)
    True
    """
    if not HAS_LOCKS:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
