"""ImageNet-GLT: rare classes and, within each class, rare looks."""

import argparse
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch import Tensor

from icda.data.bias.generalised_tail import GeneralisedTail, TailSizes, generalised_tail_from_features
from icda.data.bias.long_tail import long_tail_counts
from icda.data.datasets.glt import AnnotatedSet, GltDataset, write_annotations
from icda.data.embedding.features import Features, map_features
from icda.errors import InputError

HOME = (
    "the Generalized Long-Tailed Benchmarks of Tang et al. (ECCV 2022) for the annotation files, and ILSVRC 2012 for "
    "the images, for non-commercial research only"
)
IMAGES = "images"
LONG_TAILED, BALANCED = "imagenet_sup_intra_lt_inter_lt.json", "imagenet_sup_intra_lt_inter_bl.json"
FILES = f"{LONG_TAILED}, {BALANCED} and {IMAGES}, the training folder of ImageNet with a folder per class"
SEED = 25  # the benchmark's
LARGEST, LONG_TAIL_RATIO = 800, 160  # down to five images per class, as in ImageNet-LT
BAND_SHARES = (0.4, 0.85)  # of the classes, by rank: frequent, then middling


def _below_images(key: str, _: Mapping[str, Any]) -> str:
    """Keys are paths on the machine that made the file; the class's folder and the file's name are what holds here."""
    return "/".join(PurePosixPath(key).parts[-2:])


GltDataset(
    "imagenet_glt", "ImageNet-GLT", HOME, FILES, (LONG_TAILED, BALANCED), (IMAGES, IMAGES), _below_images
).register()


def make_imagenet_glt(
    features: str | PathLike[str],
    out: str | PathLike[str],
    *,
    seed: int = SEED,
    largest: int = LARGEST,
    ratio: float = LONG_TAIL_RATIO,
    sizes: TailSizes | None = None,
) -> GeneralisedTail:
    """Make both annotation files again from what `icda embed` wrote of a folder of images, one subfolder per class.

    Classes are numbered from the one with most images to the one with fewest. Train-GLT falls off geometrically from
    `largest` by `ratio`; `sizes` changes the other parts. The files name their metadata and have no validation set.
    Differs from the published files in the encoder, the tail's shape (theirs is a stored list) and all draws.
    """
    known = map_features(features)
    if known.y_code is None or known.class_names is None:
        raise InputError(f"{features} has no classes: embed a folder with a subfolder per class, without --unlabelled.")
    codes = torch.from_numpy(known.y_code).long()
    order = codes.bincount().argsort(descending=True, stable=True)  # the old number of each new one
    labels = order.argsort()[codes]
    tail_sizes = sizes or TailSizes(long_tail_counts(largest, len(order), ratio))
    parts = generalised_tail_from_features(_mapped_tensor(known), labels, seed, tail_sizes)
    class_names = tuple(str(known.class_names[number]) for number in order.tolist())
    for file, train in ((LONG_TAILED, parts.train_glt), (BALANCED, parts.train_cbl)):
        rows = {"train": train, "test_bl": parts.test_cbl, "test_bbl": parts.test_gbl, "metadata": parts.metadata}
        sets = {
            name: AnnotatedSet(list(map(str, known.id[own.numpy()])), labels[own], parts.attributes[own])
            for name, own in rows.items()
        }
        write_annotations(Path(out).expanduser() / file, class_names, sets, _bands(len(order)))
    return parts


def _mapped_tensor(known: Features) -> Tensor:
    """The features as a tensor that stays in its file: those of all of ImageNet are ten gigabytes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # and nobody writes to it
        return torch.as_tensor(known.features)


def _bands(num_classes: int) -> list[int]:
    """The frequency band of each class by its rank; of 1,000 classes 400 are frequent and 150 rare."""
    return [sum(rank >= share * num_classes for share in BAND_SHARES) for rank in range(num_classes)]


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m icda.data.datasets.imagenet_glt FEATURES OUT`"""
    parser = argparse.ArgumentParser(description="Make the annotation files of ImageNet-GLT again from features.")
    parser.add_argument("features", type=Path, help="file of `icda embed` over a folder with one subfolder per class")
    parser.add_argument("out", type=Path, help=f"folder to write {LONG_TAILED} and {BALANCED} to")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--largest", type=int, default=LARGEST, help="images of the largest class in Train-GLT")
    parser.add_argument("--ratio", type=float, default=LONG_TAIL_RATIO, help="largest to smallest class in Train-GLT")
    options = parser.parse_args(arguments)
    parts = make_imagenet_glt(**vars(options))
    for name in ("train_glt", "train_cbl", "test_cbl", "test_gbl", "metadata"):
        print(f"{name}: {len(getattr(parts, name))} images")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
