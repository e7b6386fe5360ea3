"""Make the features file of the tasks celeba_10k_features_fold_1 to 5: EfficientNet-Lite0 on the first 10,000 faces.

    python tools/celeba_features.py OUT_FOLDER

The images of 64 pixels are enlarged to the 224 of the encoder, as `icda embed` does. Takes minutes; put OUT_FOLDER's file
beside celeba_10k_64px.npz, or links to both into one folder that ICDA_DATA names.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from icda.data.datasets.benchmark_files import decode_blob, read_named
from icda.data.datasets.celeba import FEATURES_FILE, FIRST_FILE
from icda.data.registry import data_root
from icda.models.encoders import create_encoder
from icda.results.files import replacing


def main(out: Path) -> None:
    stored = read_named(data_root() / FIRST_FILE, ("blob", "offsets"))
    images = decode_blob(stored["blob"], stored["offsets"]).numpy()
    encoder = create_encoder("efficientnet_lite0", "image")
    side = (encoder.image_size,) * 2
    features = []
    for start in range(0, len(images), 100):
        enlarged = [
            np.asarray(Image.fromarray(image).resize(side, Image.Resampling.BILINEAR))
            for image in images[start : start + 100]
        ]
        features.append(encoder.encode(torch.from_numpy(np.stack(enlarged))).numpy())
        print(f"\r{start + len(enlarged)} of {len(images)}", end="", file=sys.stderr)
    with replacing(out / FEATURES_FILE) as file:  # and its folder
        np.savez(file, features=np.concatenate(features).astype(np.float16), encoder=encoder.version)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder that gets the file")
    main(parser.parse_args().out)
