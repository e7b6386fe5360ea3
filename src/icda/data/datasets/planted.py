"""Known sets with a planted shortcut: how far a method relies on it is then known, whatever the set."""

from functools import partial
from pathlib import Path

from icda.data.bias.shortcut import Kind, plant_shortcut
from icda.data.registry import TASKS
from icda.data.task import Task

RATE = 0.95  # of training samples whose mark tells their class


def planted(root: Path | None, seed: int, *, base: str, kind: Kind, name: str) -> Task:
    """The task `base` with a mark of `kind` that tells the class of 95 % of the training samples."""
    return plant_shortcut(TASKS.get(base)(root, seed), kind, RATE, seed, name)


PLANTED: tuple[tuple[str, str, Kind], ...] = (
    ("digits_frame", "digits", "frame"),
    ("cifar10_patch_95", "cifar10", "patch"),
    ("cifar10_patch_95_small", "cifar10_small_validation", "patch"),
    ("cifar10_texture_95_small", "cifar10_small_validation", "texture"),
    ("tiny_imagenet_frame", "tiny_imagenet_lt", "frame"),
    ("cad_imdb_token", "cad_imdb", "token"),
)
for _name, _base, _kind in PLANTED:
    TASKS.register(_name)(partial(planted, base=_base, kind=_kind, name=_name))
