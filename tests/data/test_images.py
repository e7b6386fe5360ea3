"""Image files of strangers: which are opened, which are refused, and how wide pixels become bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from icda.data import images
from icda.data.images import UnreadableImageError, decode_image, find_unreadable, to_bytes


def test_postscript_called_png_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "e.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n%%EOF\n")
    with Image.open(path) as opened:  # Pillow by itself would run Ghostscript on it
        assert opened.format == "EPS"
    with pytest.raises(UnreadableImageError, match=r"e\.png"):
        decode_image(path, 8)


def test_a_giant_is_refused_before_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "giant.png"
    Image.new("L", (300, 300)).save(path)
    monkeypatch.setattr(images, "LARGEST_PIXELS", 300 * 300 - 1)
    monkeypatch.setattr(images, "to_bytes", lambda image: pytest.fail("decoded"))
    with pytest.raises(UnreadableImageError, match="300 x 300 pixels, at most 89999 are read"):
        decode_image(path, 8)


def test_a_large_jpeg_counts_as_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.jpg"
    Image.new("RGB", (800, 800), "red").save(path)
    monkeypatch.setattr(images, "LARGEST_PIXELS", 200 * 200)
    assert decode_image(path, 32).shape == (32, 32, 3)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path, suffix: str) -> None:
    values = np.linspace(0, 65535, 64, dtype=np.uint16).reshape(8, 8)
    path = tmp_path / f"deep.{suffix}"
    Image.fromarray(values).save(path)
    expected = np.round(values.astype(np.float64) * 255 / 65535)
    np.testing.assert_array_equal(decode_image(path, 8)[..., 0], expected)


@pytest.mark.parametrize("largest", [1.0, 255.0])
def test_floats_of_a_known_range_are_scaled(tmp_path: Path, largest: float) -> None:
    values = np.linspace(0, largest, 64, dtype=np.float32).reshape(8, 8)
    path = tmp_path / "float.tif"
    Image.fromarray(values).save(path)
    np.testing.assert_array_equal(decode_image(path, 8)[..., 1], np.round(values.astype(np.float64) * 255 / largest))


@pytest.mark.parametrize("values", [[-1.0, 0.5], [0.0, 300.0], [np.nan, 0.0]])
def test_floats_of_an_unknown_range_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"values from .* expected 0 to"):
        to_bytes(Image.fromarray(np.array([values], dtype=np.float32)))


def test_all_unreadable_files_are_found_in_order(tmp_path: Path) -> None:
    paths = [tmp_path / f"{k}.png" for k in range(4)]
    for path in paths:
        Image.new("RGB", (4, 4)).save(path)
    for path in (paths[2], paths[0]):
        path.write_bytes(b"broken")
    assert find_unreadable(paths, lambda path: decode_image(path, 4)) == [paths[0], paths[2]]
