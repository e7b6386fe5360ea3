"""CIFAR-10N and CIFAR-100N: the labels that people gave to the training images, whole and on small images.

Wei et al., "Learning with Noisy Labels Revisited: A Study Using Real-World Human Annotations", ICLR 2022. The labels of
CIFAR itself are kept as the clean ones. The small tasks are those of `icda.data.datasets.cifar`, on the same images
whichever labels are taken.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from icda.data.datasets.cifar import CIFAR10, CIFAR100, CifarFamily
from icda.data.given_labels import relabelled
from icda.data.registry import TASKS, find_folder
from icda.data.task import Task
from icda.errors import InputError

HOME = "CIFAR-N of Wei et al. (noisylabels.com), CC BY-NC 4.0, for research use only"
FILES = {"cifar10": ("cifar10n.npz", "CIFAR-10_human.pt"), "cifar100": ("cifar100n.npz", "CIFAR-100_human.pt")}
# Names of tasks, and of the label sets in the published files.
LABELS = {
    "cifar10": {"aggre": "aggre_label", "random1": "random_label1", "worse": "worse_label"},
    "cifar100": {"noisy": "noisy_label"},
}


def human(root: Path | None, seed: int, *, family: CifarFamily, kind: str, small: bool) -> Task:
    """Human labels on all training images that are stored, or on small ones, of which the seed decides which."""
    task = family.small(root, seed, bias="human") if small else family.whole(root, seed)
    names = FILES[family.name]
    layouts = [(folder, name) for folder in ("cifar_n", "") for name in names]
    folder = find_folder(root, f"{family.title}N", layouts, " or ".join(names), HOME)
    path = next(folder / name for name in names if (folder / name).is_file())
    given = relabelled(task, f"{path}:{LABELS[family.name][kind]}").train
    if (relabelled(task, f"{path}:clean_label").train.targets != task.train.targets).any():
        raise InputError(f"{path}: its clean_label is not that of {family.title}: the images stand in another order.")
    wrong = (given.targets != task.train.targets).double().mean()
    return replace(
        task,
        name=f"{family.name}n_{kind}{'_small' if small else ''}",
        train=given,
        description=f"{task.description} Training labels are those that people gave ({kind}), {100 * wrong:.1f} % of them "
        "wrong. For research use only.",
    )


for _family in (CIFAR10, CIFAR100):
    for _kind in LABELS[_family.name]:
        for _small in (False, True):
            _name = f"{_family.name}n_{_kind}{'_small' if _small else ''}"
            TASKS.register(_name)(partial(human, family=_family, kind=_kind, small=_small))
