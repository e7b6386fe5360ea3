"""What the data tests share: where real datasets lie, and small pictures on disk."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SHARED = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"


@pytest.fixture(scope="session")
def real_data():
    """The folder with MNIST and CIFAR-10."""
    root = Path(os.environ.get("ICDA_DATA") or SHARED)
    if not root.is_dir():
        pytest.skip(
            f"REAL DATA NOT TESTED: neither ICDA_DATA nor {SHARED} is there; MNIST and CIFAR-10 stay unchecked."
        )
    return root


@pytest.fixture
def write_image():
    """Writes a picture of noise, or of one colour, and returns its path."""

    def write(path, size=(12, 12), colour=None):
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(len(str(path))).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        (Image.fromarray(noise) if colour is None else Image.new("RGB", size, colour)).save(path)
        return path

    return write
