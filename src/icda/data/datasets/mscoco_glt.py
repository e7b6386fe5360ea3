"""MSCOCO-GLT: objects cut out of MSCOCO, with rare classes and rare attributes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from icda.data.datasets.glt_task import GltDataset
from icda.errors import InputError

HOME = (
    "the Generalized Long-Tailed Benchmarks of Tang et al. (ECCV 2022), whose mscoco_glt_generation.py and "
    "mscoco_glt_crop.py make them of MSCOCO 2014"
)
FILE = "annotation.json"
FOLDERS = ("coco_glt", "coco_cbl")  # long-tailed, balanced
FILES = f"the folders {' and '.join(FOLDERS)}, each with {FILE} and the folder images"


def _file_name(key: str, part: Mapping[str, Any]) -> str:
    """Here keys are numbers of objects; `path` has the file, by its place on the machine that made it."""
    paths = part.get("path", {})
    if key not in paths:
        raise InputError(f"a set of MSCOCO-GLT gives no path for the object {key}: make {FILE} again.")
    return PurePosixPath(paths[key]).name


_annotations, _images = ((f"{FOLDERS[0]}/{end}", f"{FOLDERS[1]}/{end}") for end in (FILE, "images"))
GltDataset("mscoco_glt", "MSCOCO-GLT", HOME, FILES, _annotations, _images, _file_name).register()
