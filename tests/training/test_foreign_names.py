"""Names that a file system allows and UTF-8 does not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from icda.training import TrainConfig, evaluate_folder, train


def write_images(folder: bytes, value: int) -> None:
    os.makedirs(folder)  # noqa: PTH103 - a path of bytes
    for number in range(10):
        with open(folder + b"/%d.png" % number, "wb") as file:  # noqa: PTH123
            Image.fromarray(np.full((8, 8, 3), value + number, np.uint8)).save(file, "PNG")


def test_a_class_folder_whose_name_is_not_utf8_is_trained_on_under_a_readable_name(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path) + b"/ph\xf6tos"
    try:
        write_images(root + b"/caf\xe9", 20)
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    write_images(root + "/naïve".encode(), 200)
    out = tmp_path / "run"
    config = TrainConfig(data=os.fsdecode(root), image_size=8, model="small_cnn", epochs=1, out=str(out))
    result = train(config)
    assert (result.task, result.class_names) == ("ph\\xf6tos", ["caf\\xe9", "naïve"])
    assert json.loads((out / "result.json").read_text(encoding="utf-8"))["class_names"] == ["caf\\xe9", "naïve"]
    assert "caf\\xe9" in (out / "report.html").read_text(encoding="utf-8")
    assert evaluate_folder(out)["metrics"] == result["metrics"]
    assert train(config, resume=True) == result
