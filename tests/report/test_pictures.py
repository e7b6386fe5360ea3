import re

import pytest
import torch

from icda.explain.pictures import data_uri
from icda.report.sections.samples import AT_ONCE, picture, sample


def test_small_pictures_are_enlarged_without_blur_and_large_ones_smoothly() -> None:
    assert 'class="picture small"' in picture(data_uri(torch.zeros(1, 8, 8)), "a zero")
    large = data_uri(torch.rand(3, 90, 90))
    assert large.startswith("data:image/webp")
    assert 'class="picture"' in picture(large, "noise")


@pytest.mark.parametrize(
    "uri", [None, "https://example.org/a.png", "data:text/html;base64,PGI+", 'data:image/png;base64,AA"onerror="x', ""]
)
def test_what_is_no_picture_is_refused(uri: object) -> None:
    with pytest.raises(ValueError, match=r"a picture in explanations\.json is"):
        picture(uri, "nothing")


def test_a_sample_shows_its_picture_or_its_text_or_its_number() -> None:
    uri = data_uri(torch.zeros(1, 8, 8))
    assert f'src="{uri}"' in sample({"picture": uri, "text": "no"}, "a zero")
    assert "&lt;b&gt;words" in sample({"text": "<b>words"}, "")
    assert "sample 7" in sample({"index": 7}, "")


def test_a_picture_cut_short_is_still_an_image_to_the_page() -> None:
    assert 'alt="cut"' in picture("data:image/png;base64,AAA", "cut")


def test_a_long_text_is_folded_between_words_and_nothing_is_lost() -> None:
    text = " ".join(f"word{k}" for k in range(200))
    drawn = str(sample({"text": text}, "a text"))
    seen, rest = re.findall(r"<summary>(.*?)</summary><span>(.*?)</span>", drawn)[0]
    assert seen + rest == text
    assert rest.startswith(" ")
    assert len(seen) <= AT_ONCE
    assert "<details>" not in str(sample({"text": text[:AT_ONCE]}, "a text"))
    unbroken = str(sample({"text": "x" * 500}, "a text"))
    assert f"<summary>{'x' * AT_ONCE}</summary>" in unbroken


def test_a_folded_text_is_escaped() -> None:
    assert "<script>" not in str(sample({"text": "<script>" * 100}, "a text"))
