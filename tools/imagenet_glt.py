"""Make both annotation files of ImageNet-GLT again from features of a folder with one subfolder per class:

icda embed ROOT/imagenet_glt/images --out features.npz
python tools/imagenet_glt.py features.npz ROOT/imagenet_glt
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from icda.data.bias.generalised_tail import GeneralisedTail, TailSizes, generalised_tail_from_features
from icda.data.bias.long_tail import long_tail_counts
from icda.data.datasets.glt import BALANCED, LONG_TAILED, METADATA, SETS, AnnotatedSet
from icda.data.embedding.features import Features, map_features
from icda.errors import InputError

SEED = 25  # the benchmark's
LARGEST, LONG_TAIL_RATIO = 800, 160  # down to five images per class, as in ImageNet-LT
BAND_SHARES = (0.4, 0.85)  # of the classes, by rank: frequent, then middling


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


def write_annotations(
    path: Path, class_names: tuple[str, ...], sets: Mapping[str, AnnotatedSet], frequencies: list[int]
) -> None:
    """Write a file that `read_annotations` reads; `frequencies` is the band (0, 1, 2) of each class."""
    content: dict[str, Any] = {
        "cat2id": {name: str(number) for number, name in enumerate(class_names)},
        "id2cat": {str(number): name for number, name in enumerate(class_names)},
    }
    empty = AnnotatedSet([], torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long))
    for name in (*SETS, METADATA):
        part = sets.get(name, empty)
        targets, attributes = part.targets.tolist(), part.attributes.tolist()
        content[name] = {
            "label": dict(zip(part.names, map(str, targets), strict=True)),
            "frequency": {image: frequencies[target] for image, target in zip(part.names, targets, strict=True)},
            "attribute": dict(zip(part.names, attributes, strict=True)),
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def _mapped_tensor(known: Features) -> Tensor:
    """The features as a tensor that stays in its file: those of all of ImageNet are ten gigabytes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # and nobody writes to it
        return torch.as_tensor(known.features)


def _bands(num_classes: int) -> list[int]:
    """The frequency band of each class by its rank; of 1,000 classes 400 are frequent and 150 rare."""
    return [sum(rank >= share * num_classes for share in BAND_SHARES) for rank in range(num_classes)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
