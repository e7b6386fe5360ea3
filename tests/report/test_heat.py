import base64
import io
import json
import re
from html import unescape

import numpy as np
from PIL import Image

from icda.report.heat import Heat, heat_map


def heat(size: int, names: list[str] | None = None) -> Heat:
    values = np.zeros((size, size))
    np.fill_diagonal(values, 3)
    values[0, 1] = 1
    return Heat(
        caption="Squares",
        corner="True ↓ Predicted →",
        names=names or [f"name {i}" for i in range(size)],
        values=values.tolist(),
        share=(values / values.sum(1, keepdims=True)).tolist(),
        text=lambda value: f"{value:.0f}",
        tip="true {row}, predicted {column}\n{value} samples, {share}",
        tokens=" ".join(f"c{i}" for i in range(size)),
    )


def test_few_classes_show_every_number_and_say_what_it_is() -> None:
    made = heat_map(heat(2))
    tips = [unescape(tip) for tip in re.findall(r'data-tip="([^"]*)"', made)]
    assert tips[:2] == [
        "true name 0, predicted name 0\n3 samples, 75.0 %",
        "true name 0, predicted name 1\n1 samples, 25.0 %",
    ]
    assert len(tips) == 4
    assert 'class="shade right shade-17"' in made  # 20 * sqrt(0.75)
    assert 'class="shade shade-10"' in made
    assert 'data-pair="c0 c1"' in made
    assert "data-sortable" not in made


def test_a_name_that_looks_like_a_place_holder_stays_as_it_is() -> None:
    assert "true {value}, predicted {share}" in unescape(heat_map(heat(2, ["{value}", "{share}"])))


def test_many_classes_become_one_pixel_a_cell_with_all_values_for_pointing() -> None:
    made = heat_map(heat(30))
    assert "<table" not in made
    image = Image.open(io.BytesIO(base64.b64decode(re.search(r"base64,([^\"]+)", made)[1])))
    pixels = np.asarray(image)
    assert pixels.shape == (30, 30, 4)
    assert pixels[0, 0, 3] == round(255 * np.sqrt(0.75))
    assert pixels[0, 1, 3] == round(255 * np.sqrt(0.25))
    assert pixels[0, 2, 3] == 0
    assert tuple(pixels[0, 0, :3]) != tuple(pixels[0, 1, :3])
    cells = json.loads(unescape(re.search(r'data-cells="([^"]*)"', made)[1]))
    assert cells == heat(30).values
    assert len(json.loads(unescape(re.search(r'data-names="([^"]*)"', made)[1]))) == 30
    assert "30 rows and columns" in made
