"""From the rows of a features file back to the images or texts they were made of, to show some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from icda.data.embedding.samples import Columns, Samples, read_samples
from icda.data.images import IMAGE_SUFFIXES
from icda.data.own.table import IMAGE, TEXT, read_table
from icda.errors import InputError, MissingFileError


def find_inputs(
    names: Sequence[str], embedding: Mapping[str, str], file: Path, given: Path | None = None
) -> Samples | None:
    """The images or texts behind `names`, from the folder or table that was given or that `icda embed` noted in the file.

    A file may be a stranger's: what it notes is used only if it lies beside the file or in the current folder.
    """
    root = given if given is not None else _noted(embedding, file)
    if root is None:
        return None
    if not root.exists():
        raise MissingFileError(f"{root.absolute()} is not there: give the folder or table that `icda embed` read.")
    if root.is_dir():
        paths = [_below(root, name) for name in names]
        if given is not None and names and not any(path.is_file() for path in paths):
            raise InputError(
                f"{root} has none of the {len(names)} images that the features name, such as {names[0]}: give the folder "
                "that `icda embed` read."
            )
        return Samples("image", paths, names)
    table, column = read_table(root), embedding.get("source_column")
    column = column if column in table.columns else table.find("text", None, (*IMAGE, *TEXT))
    if column is None:
        raise InputError(f"{root} has no column of images or texts. It has {table.described()}.")
    cells = table.columns[column]
    if all(cell.lower().endswith(IMAGE_SUFFIXES) for cell in cells[:5]):
        samples = read_samples(root, Columns(image=column), unlabelled=True)
        by_name = {str(name): Path(str(item)) for name, item in zip(samples.ids, samples.inputs, strict=True)}
        return Samples("image", [by_name.get(name, root / "missing") for name in names], names)
    rows = [int(name) if name.isdigit() else -1 for name in names]
    if not all(0 <= row < len(cells) for row in rows):
        raise InputError(
            f"{root} has {len(cells)} rows, and the features name others: give the table they were made of."
        )
    return Samples("text", [cells[row].strip() for row in rows], names)


def _noted(embedding: Mapping[str, str], file: Path) -> Path | None:
    source = embedding.get("source")
    if not source:
        return None
    root = (file.parent / source).resolve()
    near = any(root.is_relative_to(place.resolve()) for place in (Path.cwd(), file.parent))
    return root if near and root.exists() else None


def _below(root: Path, name: str) -> Path:
    path = root / name
    return path if path.resolve().is_relative_to(root.resolve()) else root / "missing"
