"""Names of the files in a run's folder, and files that are whole or not there."""

import contextlib
import io
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from icda.errors import InputError, OperationError
from icda.limits import LARGEST_JSON, read_small

try:
    import fcntl
except ImportError:  # Windows
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

RESULT = "result.json"  # figures, settings and surroundings of a finished run
EXPLANATIONS = "explanations.json"  # margins, strengths, tied samples, pictures
MODEL = "model.pt"  # the selected model
CHECKPOINT = "checkpoint.pt"  # all that is needed to go on
CONFIG = "config.yaml"  # the settings, as `icda train --config` reads them
LOG = "log.jsonl"  # one line for each epoch
TENSORBOARD = "tensorboard"  # folder of TensorBoard's event files
REPORT = "report.html"  # the page to open in a browser
FAILURE = "failure.txt"  # the traceback of a cell of a table that failed


class UnwritableError(OperationError):
    """A file could not be written."""


class DamagedFileError(InputError):
    """A file that a run wrote and that is no longer what it was."""


def lock(handle: int, wait: bool = True) -> bool:
    """Lock an open file until its process ends, however it ends; whether it is ours now, and the system has locks."""
    if not HAS_LOCKS:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


@contextmanager
def replacing(path: Path, new_folder: bool = True) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when it is whole, whoever else writes it: a reader sees the old or the new one.

    What is written first has a name nobody can foresee and is made by this call, so that it is never somebody else's file,
    nor a link to one. What killed processes left half written is removed. A file that cannot be written, as on a full disk,
    is named by the error. A device or a pipe, which nothing can replace, is written to as it is. With `new_folder` a folder
    that is not there is made; without, it is missed.
    """
    try:
        if _is_device(path):
            with path.open("wb") as device:
                yield device
            return
        if new_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with _new_part(path) as file:
            part = Path(file.name)
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if not HAS_LOCKS:
                    file.close()  # Windows moves no open file
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
    except OSError as error:
        if error.errno is None or not _is_about(error, path):
            raise
        kept = " The last good one is untouched." if path.exists() else ""
        raise UnwritableError(f"could not write {path}: {error.strerror or error}.{kept}") from error
    _remove_scraps(path)


@contextmanager
def replacing_text(path: Path, errors: str = "backslashreplace") -> Iterator[TextIO]:
    """`replacing` for text in UTF-8; `errors` says what becomes of lone surrogates, which names of files may hold."""
    with replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors=errors, newline="")
        yield text
        text.flush()
        text.detach()


def write_atomically(path: Path, content: bytes | memoryview, new_folder: bool = False) -> None:
    """Replace a file as a whole; the error says whether the last good one is still there."""
    with replacing(path, new_folder) as file:
        file.write(content)


def write_page(path: Path, page: str) -> None:
    """Replace an HTML file as a whole. Names of files may hold lone surrogates, which UTF-8 cannot carry."""
    write_atomically(path, page.encode("utf-8", "xmlcharrefreplace"), new_folder=True)


def _is_device(path: Path) -> bool:
    """Whether a name stands for no file of its own: /dev/null, /dev/stdout, a pipe."""
    return (path.exists() and not path.is_file() and not path.is_dir()) or path.absolute().parent == Path("/dev")


def _is_about(error: OSError, path: Path) -> bool:
    """Whether an error is about writing a file, and not about what was read for it; an error of a write names no file."""
    return error.filename is None or Path(os.fsdecode(error.filename)).parent == path.parent


def _new_part(path: Path) -> BinaryIO:
    """A new file beside `path`, locked as long as it is open: others know by that that it is being written."""
    while True:
        file = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part").open("xb")
        lock(file.fileno())
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # taken for a scrap before it was locked


def _remove_scraps(path: Path) -> None:
    """Remove parts of a file that nobody is writing any more; where there are no locks, nobody knows."""
    if not HAS_LOCKS:
        return
    scrap = re.compile(re.escape(f".{path.name}") + r"(\.[0-9a-f]{16})?\.part")
    for part in [place for place in path.parent.iterdir() if scrap.fullmatch(place.name)]:
        with contextlib.suppress(OSError):  # gone, or a link
            handle = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if lock(handle, wait=False):
                    part.unlink()
            finally:
                os.close(handle)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file that a run wrote."""
    try:
        values = json.loads(read_small(path, LARGEST_JSON).decode())
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedFileError(f"{path} is not JSON ({error}): was the run cut off while writing?") from error
    if not isinstance(values, dict):
        raise DamagedFileError(f"{path} holds a {type(values).__name__}, not what a run writes.")
    return values


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write plain values atomically and compactly; NaN and infinity, which JSON does not have, are refused."""
    write_atomically(path, json.dumps(values, allow_nan=False).encode())
