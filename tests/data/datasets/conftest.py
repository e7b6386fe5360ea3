"""What the tests of datasets share: encoded images, and annotation files."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from icda.data.datasets.glt import SETS


@pytest.fixture(scope="session")
def encode_images():
    """`encode_images(images)`: blob and offsets of lossless WebP images (N, H, W, 3) laid end to end."""

    def encode(images):
        parts = []
        for image in images:
            buffer = io.BytesIO()
            Image.fromarray(image).save(buffer, "WEBP", lossless=True)
            parts.append(buffer.getvalue())
        offsets = np.cumsum([0, *map(len, parts)])
        return {"blob": np.frombuffer(b"".join(parts), dtype=np.uint8), "offsets": offsets}

    return encode


def annotation(classes, sets, label=str):
    """A file of the GLT benchmark: each set has the (class, attribute) of an image by its key; labels may be texts."""
    content: dict[str, Any] = {
        "cat2id": {name: label(number) for number, name in enumerate(classes)},
        "id2cat": {str(number): name for number, name in enumerate(classes)},
    }
    for name in SETS:
        own = sets.get(name, {})
        content[name] = {
            "label": {key: label(target) for key, (target, _) in own.items()},
            "frequency": {key: target for key, (target, _) in own.items()},
            "attribute": {key: attribute for key, (_, attribute) in own.items()},
        }
    return content


@pytest.fixture(scope="session")
def annotate():
    return annotation
