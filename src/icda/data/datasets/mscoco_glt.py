"""MSCOCO-GLT: objects cut out of MSCOCO, with rare classes and rare attributes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from icda.data.datasets.glt_annotations import Annotations, read_annotations
from icda.data.datasets.glt_task import TESTS, Annotated, glt_task
from icda.data.registry import TASKS
from icda.data.roots import check_files, find_folder
from icda.data.task import Task
from icda.errors import InputError

HOME = (
    "the Generalized Long-Tailed Benchmarks of Tang et al. (ECCV 2022), whose mscoco_glt_generation.py and "
    "mscoco_glt_crop.py make them of MSCOCO 2014"
)
FOLDER, FILE, IMAGES = "mscoco_glt", "annotation.json", "images"
LONG_TAILED, BALANCED = "coco_glt", "coco_cbl"
FILES = f"the folders {LONG_TAILED} and {BALANCED}, each with {FILE} and the folder {IMAGES}"


def mscoco_glt(root: Path | None, seed: int, *, protocol: str) -> Task:
    """MSCOCO-GLT as the benchmark's scripts write it; the seed decides only which images are metadata."""
    layouts = [(FOLDER, f"{LONG_TAILED}/{FILE}"), (FOLDER, f"{BALANCED}/{FILE}")]
    folder = find_folder(root, "MSCOCO-GLT", layouts, FILES, HOME).resolve()
    check_files(folder, "MSCOCO-GLT", (f"{LONG_TAILED}/{FILE}", f"{BALANCED}/{FILE}"))
    files = [Annotated(_read(folder / name / FILE), folder / name / IMAGES) for name in (LONG_TAILED, BALANCED)]
    own, other = files if protocol != "alt" else files[::-1]
    return glt_task(f"mscoco_glt_{protocol}", "MSCOCO-GLT", HOME, protocol, own, other, seed)


for _protocol in TESTS:
    TASKS.register(f"mscoco_glt_{_protocol}")(partial(mscoco_glt, protocol=_protocol))


@lru_cache(maxsize=2)  # a benchmark asks for the same task many times
def _read(path: Path) -> Annotations:
    return read_annotations(path, _file_name)


def _file_name(key: str, part: Mapping[str, Any]) -> str:
    """Here keys are numbers of objects; `path` has the file, by its place on the machine that made it."""
    paths = part.get("path", {})
    if key not in paths:
        raise InputError(f"a set of MSCOCO-GLT gives no path for the object {key}: make {FILE} again.")
    return PurePosixPath(paths[key]).name
