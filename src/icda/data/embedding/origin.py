"""Where embedded inputs lie: noted in the features file, and found again for a page that shows them."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from icda.data.embedding.samples import Reads, Samples
from icda.data.images import IMAGE_SUFFIXES
from icda.data.own.table import IMAGE, TEXT, image_paths, listed, read_table
from icda.errors import InputError, MissingFileError


def origin_of(samples: Samples, out: Path) -> dict[str, str]:
    """Where the inputs lie, as seen from the file: with it the audit's page finds pictures and texts."""
    if samples.source is None:
        return {}
    try:
        place = os.path.relpath(samples.source.resolve(), out.parent.resolve())
    except ValueError:  # another drive of Windows
        return {}
    about = {} if samples.reads.column is None else {"source_column": samples.reads.column}
    if samples.source.is_file():  # by it the table is known again
        about["source_sha256"] = digest_of(samples.source)
    return {"source": Path(place).as_posix(), **about}


def find_inputs(
    names: Sequence[str], embedding: Mapping[str, str], file: Path, given: Path | None = None
) -> Samples | None:
    """The images or texts behind `names`, from the folder or table that was given or that `icda embed` noted in the file.

    A file may be a stranger's: what it notes is used only if it lies beside the file, and a table only if it is, to the
    byte, the one that was embedded.
    """
    root = given if given is not None else _noted(embedding, file)
    if root is None:
        return None
    if not root.exists():
        raise MissingFileError(f"{root.absolute()} is not there: give the folder or table that `icda embed` read.")
    if root.is_dir():
        inside = [(root / name).resolve().is_relative_to(root.resolve()) for name in names]
        paths = [root / (name if own else "missing") for name, own in zip(names, inside, strict=True)]
        if given is not None and names and not any(path.is_file() for path in paths):
            raise InputError(
                f"{root} has none of the {len(names)} images that the features name, such as {names[0]}: give the folder "
                "that `icda embed` read."
            )
        return Samples(Reads("image"), names, paths)
    table, column = read_table(root), embedding.get("source_column")
    column = column if column in table.columns else table.find("text", None, (*IMAGE, *TEXT))
    if column is None:
        raise InputError(f"{root} has no column of images or texts. It has {listed(table.names)}.")
    cells = table.columns[column]
    if all(cell.lower().endswith(IMAGE_SUFFIXES) for cell in cells[:5]):
        by_name = dict(zip(table.column(column), image_paths(table, column, allow_outside=False), strict=True))
        return Samples(Reads("image"), names, [by_name.get(name, root / "missing") for name in names])
    rows = [int(name) if name.isdigit() else -1 for name in names]
    if not all(0 <= row < len(cells) for row in rows):
        raise InputError(f"{root} has {len(cells)} rows, and the features name others: give the table they are of.")
    return Samples(Reads("text"), names, [cells[row].strip() for row in rows])


def _noted(embedding: Mapping[str, str], file: Path) -> Path | None:
    source = embedding.get("source")
    if not source:
        return None
    root = (file.parent / source).resolve()
    if not root.is_relative_to(file.parent.resolve()) or not root.exists():
        return None
    return root if root.is_dir() or embedding.get("source_sha256") == digest_of(root) else None


def digest_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
