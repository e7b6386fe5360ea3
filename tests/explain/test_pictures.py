import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from icda.data import csv_task
from icda.data.augmentation import Normaliser
from icda.data.sources import FeatureArray, ImageArray
from icda.data.task import Split, Task
from icda.explain.pictures import (
    data_uri,
    has_pictures,
    heat_overlay,
    show_samples,
    to_inputs,
    to_pixels,
)


def decode(uri):
    head, data = uri.split(",", 1)
    assert head in ("data:image/png;base64", "data:image/webp;base64")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


@pytest.mark.parametrize("channels", [1, 3])
def test_the_picture_of_a_sample_is_the_bytes_it_was_made_of(channels):
    images = torch.randint(0, 256, (4, 6, 5, channels), dtype=torch.uint8)
    rows, targets = torch.tensor([3, 1, 2]), torch.tensor([0, 1, 0])
    split = Split(ImageArray(images, (0.4,) * channels, (0.2,) * channels), rows, targets)
    task = Task("t", 2, split, None, split, input_shape=(channels, 6, 5))
    for found, row in zip(show_samples(task, split, torch.tensor([2, 0])), (2, 3), strict=True):
        wanted = images[row].numpy()
        assert np.array_equal(decode(found["picture"]), wanted[:, :, 0] if channels == 1 else wanted)


def test_pixels_and_inputs_are_inverse_and_an_unknown_source_is_stretched_from_darkest_to_brightest():
    normaliser, pixels = Normaliser((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)), torch.rand(2, 3, 4, 4)
    torch.testing.assert_close(to_pixels(to_inputs(pixels, normaliser), normaliser), pixels)
    found = to_pixels(torch.tensor([[[[-3.0, 1.0], [5.0, 1.0]]]]), None)
    assert found.flatten().tolist() == [0.0, 0.5, 1.0, 0.5]


def test_a_large_picture_becomes_a_small_file_and_two_channels_are_shown_as_red_and_green():
    uri = data_uri(torch.rand(3, 300, 200))
    assert uri.startswith("data:image/webp")
    assert decode(uri).shape == (96, 64, 3)
    found = decode(data_uri(torch.tensor([1.0, 0.5])[:, None, None].expand(2, 3, 3)))
    assert found[0, 0].tolist() == [255, 128, 0]


def test_the_hottest_place_is_the_brightest_of_an_overlay():
    heat = torch.zeros(4, 4)
    heat[1, 2] = 0.7
    found = heat_overlay(torch.full((3, 4, 4), 0.5), heat).sum(0)
    assert int(found.argmax()) == 6
    assert torch.isfinite(heat_overlay(torch.rand(1, 4, 4), torch.zeros(4, 4))).all()


def test_texts_are_shown_as_they_were_written_and_cut_where_they_are_long(tmp_path):
    path = tmp_path / "t.csv"
    rows = [(f"<script>{k}</script>" if k else "word " * 200, "ab"[k % 2]) for k in range(60)]
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    task = csv_task(path)
    shown = {
        int(task.train.rows[i]): show_samples(task, task.train, torch.tensor([i]))[0] for i in range(len(task.train))
    }
    assert not has_pictures(task)
    assert all(found == {"text": rows[row][0]} for row, found in shown.items() if row)
    assert all(len(found["text"]) <= 400 for found in shown.values())


def test_features_have_nothing_to_show(coloured):
    split = Split(FeatureArray(torch.eye(4)), torch.arange(4), torch.arange(4) % 2)
    task = Task("t", 2, split, None, split, input_kind="features", input_shape=(4,))
    assert show_samples(task, split, torch.tensor([0, 1])) == [{}, {}]
    assert has_pictures(coloured.task)
