"""ImageNet-LT as features: a linear head on a frozen encoder, by the lists of OLTR."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from icda.data.datasets.benchmark_files import read_pairs
from icda.data.embedding.features import Features, load_features
from icda.data.generators import generator_for
from icda.data.registry import TASKS, DatasetNotFoundError, check_files, find_folder
from icda.data.sources import FeatureArray
from icda.data.splits import take_per_class
from icda.data.task import Split, Task
from icda.errors import InputError

HOME = "OLTR (Liu et al., CVPR 2019) for the lists, and ILSVRC 2012 for the images, for non-commercial research only"
FOLDER = "imagenet_lt"
PARTS = ("train", "val", "test")
COUNTS = {"train": 115_846, "val": 20_000, "test": 50_000}
CLASSES, METADATA = 1000, 10


@TASKS.register("imagenet_lt")
def imagenet_lt(root: Path | None, seed: int) -> Task:
    """ImageNet-LT, 1,280 to 5 training images per class, as features of a frozen encoder.

    Of the 20 images per class in OLTR's validation list ten, chosen by the seed, are metadata and ten validate. Lists and
    features lie in `imagenet_lt` below the root; `tools/imagenet_lt.py` and `icda embed` make the features.
    """
    layouts = [(FOLDER, list_file(part)) for part in PARTS]
    files = f"{', '.join(map(list_file, PARTS))}, and train.npz, val.npz, test.npz with features of the images"
    folder = find_folder(root, "ImageNet-LT", layouts, files, HOME).resolve()
    train, held_out, test = _read(folder)
    metadata, validation = take_per_class(held_out.targets, [METADATA], generator_for(seed, "imagenet_lt"))
    return Task(
        name="imagenet_lt",
        num_classes=CLASSES,
        train=train,
        validation=held_out.subset(validation),
        test=test,
        metadata=held_out.subset(metadata),
        input_kind="features",
        input_shape=tuple(train.batch(torch.tensor([0])).inputs.shape[1:]),
        default_model="linear",
        description="ImageNet-LT by OLTR's lists, as features of a frozen encoder; test is balanced. An encoder that saw "
        "all of ImageNet has seen the test classes balanced: say which it was.",
    )


def list_file(part: str) -> str:
    """OLTR's name for the list of a part."""
    return f"ImageNet_LT_{part}.txt"


@lru_cache(maxsize=1)  # features of the whole are a gigabyte, and a benchmark asks many times
def _read(folder: Path) -> tuple[Split, ...]:
    """The whole of each part."""
    check_files(folder, "ImageNet-LT", map(list_file, PARTS))
    if missing := [f"{part}.npz" for part in PARTS if not (folder / f"{part}.npz").is_file()]:
        commands = "".join(
            f"\n  icda embed {folder / part}.csv --allow-outside --out {folder / part}.npz" for part in PARTS
        )
        raise DatasetNotFoundError(
            f"ImageNet-LT in {folder} has its lists but no features: {', '.join(missing)} is missing. These make them:"
            f"\n  python tools/imagenet_lt.py {folder} IMAGENET_FOLDER{commands}\n"
            "Choose the encoder with --encoder."
        )
    splits, encoders = [], {}
    for part in PARTS:
        path = folder / f"{part}.npz"
        known = load_features(path)
        names, labels = checked_list(folder, part)
        _check_rows(path, known, names, labels)
        encoders[part] = known.encoder, known.encoder_version, known.features.shape[1]
        splits.append(Split(FeatureArray(known.features), torch.arange(len(labels)), labels))
    if len(set(encoders.values())) > 1:
        raise InputError(f"the features in {folder} are of different encoders, {encoders}: make them all with one.")
    return tuple(splits)


def checked_list(folder: Path, part: str) -> tuple[list[str], Tensor]:
    names, labels = read_pairs(folder / list_file(part), {str(label): label for label in range(CLASSES)})
    if len(names) != COUNTS[part]:
        raise InputError(f"{folder / list_file(part)} has {len(names)} images, expected {COUNTS[part]}: fetch it.")
    return names, torch.tensor([int(label) for label in labels])


def _check_rows(path: Path, known: Features, names: Sequence[str], labels: Tensor) -> None:
    """Refuse features of other images, of other labels, or in another order than the list's."""
    if len(known) != len(names):
        skipped = f"; could not be read: {', '.join(map(str, known.skipped[:3]))}" if len(known.skipped) else ""
        raise InputError(f"{path} has {len(known)} rows, its list has {len(names)} images{skipped}: embed it again.")
    if known.y is None:
        raise InputError(f"{path} has no labels: embed the table `python tools/imagenet_lt.py` writes.")
    for row, (name, label) in enumerate(zip(names, labels.tolist(), strict=True)):
        image, own = str(known.id[row]), str(known.y[row])
        if not f"/{image}".endswith(f"/{name}") or own != str(label):
            raise InputError(
                f"{path}, row {row}: {image} of label {own}, its list has {name} of {label}: embed it again."
            )
