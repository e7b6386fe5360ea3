"""Which data a model was fitted to, kept in its folder so that `icda ask MODEL` can show them again."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter

from icda.errors import InputError, MissingFileError
from icda.results.files import read_json, write_atomically
from icda.serving.fit_data import Asked
from icda.serving.folder import SOURCE


def write_source(path: Path, folder: Path, data: Path, asked: Asked) -> None:
    """Note in a file the place of the data, as seen from the model's folder, and what their columns mean."""
    place = os.path.relpath(data.expanduser().resolve(), folder.resolve())
    write_atomically(path, json.dumps({"data": place, "asked": asdict(asked)}, indent=1).encode())


def read_source(folder: Path) -> tuple[Path, Asked]:
    """The data of a model. Its folder may be a stranger's: only data below the current folder, or beside it, are shown."""
    path = folder / SOURCE
    if not path.is_file():
        raise MissingFileError(f"{folder} does not say which data it was fitted to: give the data instead.")
    noted = read_json(path)
    try:
        known = TypeAdapter(Asked).validate_python(noted["asked"])
        data = (folder / str(noted["data"])).resolve()
    except (KeyError, ValueError) as error:
        raise InputError(f"{path} was not written by this icda ({error}): give the data instead.") from error
    if not any(data.is_relative_to(near.resolve()) for near in (Path.cwd(), folder.parent)):
        raise InputError(f"{path} names {data}, neither here nor beside the model: give the data instead.")
    here = Path.cwd().resolve()
    return data.relative_to(here) if data.is_relative_to(here) else data, known
