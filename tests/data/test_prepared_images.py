from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from icda.data.images import central_square, inner_square
from icda.data.sources import IMAGENET_MEAN, IMAGENET_STD, PreparedImages, UnreadableImageError


def noise(width: int, height: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_of_a_celeba_image_the_middle_178_rows_are_kept() -> None:
    pixels = noise(178, 218)
    assert np.array_equal(np.asarray(central_square(Image.fromarray(pixels), 178)), pixels[20:198])


def test_a_wide_image_loses_its_sides() -> None:
    pixels = noise(30, 10)
    assert np.array_equal(np.asarray(central_square(Image.fromarray(pixels), 10)), pixels[:, 10:20])


def test_of_256_pixels_the_inner_224_are_kept() -> None:
    pixels = noise(256, 256)
    assert np.array_equal(np.asarray(inner_square(Image.fromarray(pixels), 224)), pixels[16:240, 16:240])


def test_images_are_standardised_by_imagenet_and_not_augmented_unless_asked(tmp_path: Path) -> None:
    pixels = noise(12, 12)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    source = PreparedImages([tmp_path / "a.png"], 12, central_square, crop_padding=0, flip=False)
    rows = torch.tensor([0])
    expected = (torch.from_numpy(pixels).double() / 255 - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)
    found = source.fetch(rows)
    torch.testing.assert_close(found[0].permute(1, 2, 0).double(), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(source.fetch(rows, torch.Generator()), found)
    moved = PreparedImages([tmp_path / "a.png"], 12, central_square, crop_padding=2, flip=True)
    assert not torch.equal(moved.fetch(rows, torch.Generator().manual_seed(1)), found)


def test_the_fingerprint_tells_preparations_and_sizes_apart(tmp_path: Path) -> None:
    Image.fromarray(noise(12, 12)).save(tmp_path / "a.png")
    recipes = [(8, central_square), (8, inner_square), (9, central_square), (8, central_square)]
    marks = [PreparedImages([tmp_path / "a.png"], size, prepare).fingerprint for size, prepare in recipes]
    assert marks[0] == marks[3]
    assert len(set(marks)) == 3


def test_a_file_that_is_no_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no image")
    source = PreparedImages([tmp_path / "a.jpg"], 8, central_square)
    with pytest.raises(UnreadableImageError, match=r"cannot read the image .*a.jpg .*fetch it again"):
        source.fetch(torch.tensor([0]))


def test_no_rows_give_no_images() -> None:
    assert PreparedImages([], 8, central_square).fetch(torch.empty(0, dtype=torch.long)).shape == (0, 3, 8, 8)
