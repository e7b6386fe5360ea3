"""The system's locks on open files and folders: they end with the process, however it ends. Windows has none of them."""

from __future__ import annotations

import errno

try:
    import fcntl
except ImportError:  # Windows
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)  # some file systems


def lock(handle: int, wait: bool = True) -> bool | None:
    """Lock an open file: True if it is ours now, False if another has it, None where there are no locks.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     lock(file.fileno(), wait=False)
    True
    """
    if not HAS_LOCKS:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        return None
    return True
