"""Which cluster of its class each Tiny ImageNet image is in: a small file of the package, and how it was made."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from importlib import resources
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from icda.data.bias.clusters import cluster_within_classes
from icda.data.datasets.tiny_imagenet import FILE, StoredImages, locate_file, read_stored
from icda.data.embedding.features import load_features
from icda.errors import InputError

CLUSTER_FILE = "clusters/tiny_imagenet.npz"
SEED = 0
COMMANDS = """python -m icda.data.datasets.tiny_imagenet_clusters images FOLDER
icda embed FOLDER --unlabelled --image-size 112 --out FEATURES.npz
python -m icda.data.datasets.tiny_imagenet_clusters clusters FEATURES.npz OUT.npz"""


def read_clusters(stored: StoredImages) -> Tensor:
    """The cluster (N,) of each image of the long-tailed Tiny ImageNet, as the package carries it.

    The file holds cluster numbers and no image or feature. It fits one order of the images only, which is checked.
    """
    with (
        resources.as_file(resources.files("icda.data.datasets") / CLUSTER_FILE) as path,
        np.load(path, allow_pickle=False) as file,
    ):
        clusters, digest = file["clusters"], str(file["digest"])
    if digest != labels_digest(stored):
        raise InputError(
            f"the clusters that icda carries are not of this {FILE} ({len(clusters)} images there, {len(stored.labels)} "
            f"here, or other labels). Fetch the file again, or make clusters for it:\n{COMMANDS}"
        )
    return torch.from_numpy(clusters.astype(np.int64))


def write_images(folder: str | PathLike[str], root: str | PathLike[str] | None = None) -> int:
    """Write each image as a PNG file whose name is its row, for `icda embed`; gives their number."""
    folder = Path(folder).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    images = read_stored(locate_file(None if root is None else Path(root))).images
    for row, image in enumerate(images):
        Image.fromarray(image).save(folder / _name(row))
    return len(images)


def make_clusters(
    features: str | PathLike[str], out: str | PathLike[str], root: str | PathLike[str] | None = None
) -> Tensor:
    """Cluster the features that `icda embed` made of the images, and write the file that `read_clusters` reads.

    Features are first scaled to length 1. Without that k-means spends clusters on single images of unusual length, and
    the rare attribute of many classes has two or three images in all.
    """
    stored = read_stored(locate_file(None if root is None else Path(root)))
    known = load_features(features)
    if known.id.tolist() != [_name(row) for row in range(len(stored.labels))]:
        raise InputError(
            f"{features} has {len(known)} rows, expected one for each of {len(stored.labels)} images in the order of the "
            f"file. These commands make it:\n{COMMANDS}"
        )
    unit = F.normalize(torch.from_numpy(known.features).double())
    clusters = cluster_within_classes(unit, stored.labels, SEED)
    np.savez_compressed(
        Path(out).expanduser(),
        clusters=clusters.numpy().astype(np.uint8),
        digest=np.array(labels_digest(stored)),
        encoder=np.array(f"{known.encoder}, {known.encoder_version}"),
    )
    return clusters


def labels_digest(stored: StoredImages) -> str:
    """SHA-256 over the labels and parts of all images, which no other order of them would give."""
    digest = hashlib.sha256(stored.labels.numpy().astype("<i8").tobytes())
    digest.update(stored.split.numpy().astype("<i8").tobytes())
    return digest.hexdigest()


def _name(row: int) -> str:
    return f"{row:05d}.png"


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m icda.data.datasets.tiny_imagenet_clusters images FOLDER`, then `... clusters FEATURES OUT`"""
    parser = argparse.ArgumentParser(description=f"Make the clusters of Tiny ImageNet again:\n{COMMANDS}")
    commands = parser.add_subparsers(dest="command", required=True)
    images = commands.add_parser("images", help="write the images as files for `icda embed`")
    images.add_argument("folder", type=Path)
    clusters = commands.add_parser("clusters", help="cluster the features of these images within each class")
    clusters.add_argument("features", type=Path)
    clusters.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "images":
        print(f"{write_images(options.folder)} images in {options.folder}")
    else:
        print(f"{len(make_clusters(options.features, options.out))} clusters in {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
