"""Make the clusters of Tiny ImageNet again, which the package carries:

python tools/tiny_imagenet_clusters.py images FOLDER
icda embed FOLDER --unlabelled --image-size 112 --out FEATURES.npz
python tools/tiny_imagenet_clusters.py clusters FEATURES.npz OUT.npz
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from icda.data.bias.generalised_tail import cluster_within_classes
from icda.data.datasets.tiny_imagenet import labels_digest, locate_file, read_stored
from icda.data.embedding.features import load_features
from icda.errors import InputError

SEED = 0


def write_images(folder: Path) -> int:
    """Write each image as a PNG file whose name is its row, for `icda embed`; gives their number."""
    folder.mkdir(parents=True, exist_ok=True)
    images = read_stored(locate_file(None)).images
    for row, image in enumerate(images):
        Image.fromarray(image).save(folder / _name(row))
    return len(images)


def make_clusters(features: Path, out: Path) -> Tensor:
    """Cluster the features that `icda embed` made of the images, and write the file that `read_clusters` reads.

    Features are first scaled to length 1. Without that k-means spends clusters on single images of unusual length, and
    the rare attribute of many classes has two or three images in all.
    """
    stored = read_stored(locate_file(None))
    known = load_features(features)
    if known.id.tolist() != [_name(row) for row in range(len(stored.labels))]:
        raise InputError(
            f"{features} has {len(known)} rows, expected one for each of {len(stored.labels)} images in the order of the "
            f"file. These commands make it: {__doc__}"
        )
    unit = F.normalize(torch.from_numpy(known.features).double())
    clusters = cluster_within_classes(unit, stored.labels, SEED)
    np.savez_compressed(
        out,
        clusters=clusters.numpy().astype(np.uint8),
        digest=np.array(labels_digest(stored)),
        encoder=np.array(f"{known.encoder}, {known.encoder_version}"),
    )
    return clusters


def _name(row: int) -> str:
    return f"{row:05d}.png"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
