"""Image files of strangers: which are opened, which are refused, and how wide pixels become bytes."""

import numpy as np
import pytest
import torch
from PIL import Image

from icda.data import images
from icda.data.images import UnreadableImageError, central_square, decode_image, find_unreadable, inner_square, to_bytes
from icda.data.sources import IMAGENET, IMAGENET_MEAN, IMAGENET_STD, ImageFiles


def test_postscript_called_png_is_not_opened(tmp_path):
    path = tmp_path / "e.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n%%EOF\n")
    with Image.open(path) as opened:  # Pillow by itself would run Ghostscript on it
        assert opened.format == "EPS"
    with pytest.raises(UnreadableImageError, match=r"e\.png"):
        decode_image(path, 8)


@pytest.mark.parametrize("suffix", ["png", "jpg"])  # a JPEG could be decoded small
def test_a_giant_is_refused_before_it_is_decoded(suffix, tmp_path, monkeypatch):
    path = tmp_path / f"giant.{suffix}"
    Image.new("L", (300, 300)).save(path)
    assert decode_image(path, 8).shape == (8, 8, 3)
    monkeypatch.setattr(images, "LARGEST_PIXELS", 300 * 300 - 1)
    monkeypatch.setattr(images, "to_bytes", lambda image: pytest.fail("decoded"))
    with pytest.raises(UnreadableImageError, match="300 x 300 pixels, at most 89999 are read"):
        decode_image(path, 8)


@pytest.mark.parametrize(
    ("suffix", "kind", "largest"),
    [("png", np.uint16, 65535), ("tif", np.uint16, 65535), ("tif", np.float32, 1.0), ("tif", np.float32, 255.0)],
)
def test_sixteen_bits_and_floats_of_a_known_range_are_scaled_not_clipped(tmp_path, suffix, kind, largest):
    values = np.linspace(0, largest, 64, dtype=kind).reshape(8, 8)
    Image.fromarray(values).save(tmp_path / f"deep.{suffix}")
    expected = np.round(values.astype(np.float64) * 255 / largest)
    np.testing.assert_array_equal(decode_image(tmp_path / f"deep.{suffix}", 8)[..., 0], expected)


@pytest.mark.parametrize("values", [[-1.0, 0.5], [0.0, 300.0], [np.nan, 0.0]])
def test_floats_of_an_unknown_range_are_refused(values):
    with pytest.raises(ValueError, match=r"values from .* expected 0 to"):
        to_bytes(Image.fromarray(np.array([values], dtype=np.float32)))


def test_all_unreadable_files_are_found_in_order(tmp_path):
    paths = [tmp_path / f"{k}.png" for k in range(4)]
    for path in paths:
        Image.new("RGB", (4, 4)).save(path)
    for path in (paths[2], paths[0]):
        path.write_bytes(b"broken")
    assert find_unreadable(paths, 4) == [paths[0], paths[2]]


def noise(width, height):
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("prepare", "shape", "size", "kept"),
    [
        (central_square, (178, 218), 178, np.s_[20:198]),  # CelebA's
        (central_square, (30, 10), 10, np.s_[:, 10:20]),
        (inner_square, (256, 256), 224, np.s_[16:240, 16:240]),
    ],
)
def test_the_middle_of_an_image_is_kept(prepare, shape, size, kept):
    pixels = noise(*shape)
    assert np.array_equal(np.asarray(prepare(Image.fromarray(pixels), size)), pixels[kept])


def test_images_are_standardised_by_imagenet_and_not_augmented_unless_asked(tmp_path):
    pixels = noise(12, 12)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    source = ImageFiles([tmp_path / "a.png"], 12, *IMAGENET, prepare=central_square, crop_padding=0, flip=False)
    rows = torch.tensor([0])
    expected = (torch.from_numpy(pixels).double() / 255 - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)
    found = source.fetch(rows)
    torch.testing.assert_close(found[0].permute(1, 2, 0).double(), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(source.fetch(rows, torch.Generator()), found)
    moved = ImageFiles([tmp_path / "a.png"], 12, *IMAGENET, prepare=central_square, crop_padding=2, flip=True)
    assert not torch.equal(moved.fetch(rows, torch.Generator().manual_seed(1)), found)
    assert ImageFiles([], 12, *IMAGENET, prepare=central_square, cache_bytes=-1).fetch(rows[:0]).shape == (0, 3, 12, 12)


def test_the_fingerprint_tells_preparations_and_sizes_apart(tmp_path):
    Image.fromarray(noise(12, 12)).save(tmp_path / "a.png")
    recipes = [(8, central_square), (8, inner_square), (9, central_square), (8, central_square)]
    marks = [
        ImageFiles([tmp_path / "a.png"], size, *IMAGENET, prepare=prepare).fingerprint for size, prepare in recipes
    ]
    assert marks[0] == marks[3]
    assert len(set(marks)) == 3
