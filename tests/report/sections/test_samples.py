import re
from typing import Any

import pytest
import torch

from icda.explain.pictures import data_uri
from icda.report.sections.samples import AT_ONCE, counterfactuals, gradcam, picture, sample, tied

URI = data_uri(torch.zeros(1, 8, 8))
NAMES = {"class_names": ["cat", "dog"], "group_names": ["day", "night"]}


def entry(**more: Any) -> dict[str, Any]:
    return {"index": 7, "target": 0, "towards": 1, "prediction": 1, "group": 1, "strength": 0.5, "picture": URI} | more


def test_a_tied_sample_says_everything_about_itself(run_of: Any) -> None:
    made = tied(run_of({"tied": [entry()]}, **NAMES), 2)
    assert 'alt="train 7: labelled cat, tied to dog"' in made
    assert '<figure class="card" data-class="c0 c1" data-group="g1">' in made
    assert "<dt>group</dt><dd>night</dd>" in made


def test_many_samples_leave_the_rest_for_whoever_asks(run_of: Any) -> None:
    made = tied(run_of({"tied": [entry(index=i) for i in range(30)]}, **NAMES), 2)
    assert made.count('class="card"') == 30
    assert "<summary>6 more</summary>" in made
    none = tied(run_of({"tied": [entry(strength=0.0)]}, **NAMES), 2)
    assert "every strength is zero" in none
    assert "card" not in none


def test_heat_maps_say_right_or_wrong_in_more_than_colour(run_of: Any) -> None:
    samples = [entry(heat=URI, centre_share=0.25), entry(index=8, prediction=0, heat=URI)]
    made = gradcam(run_of({"gradcam": {"layer": "layer4", "samples": samples}}, **NAMES), 2)
    assert made.count("✗") == made.count("✓") == 1
    assert "<dt>in centre</dt><dd>25.0 %</dd>" in made
    assert "Layer layer4." in made


def test_a_counterfactual_stands_beside_its_real_neighbours(run_of: Any) -> None:
    sample = entry(made=URI, feature_error=0.125, neighbours=[entry(index=3, target=1)])
    made = counterfactuals(run_of({"counterfactuals": {"augmentation": "icda", "samples": [sample]}}, **NAMES), 2)
    assert made.count("<img") == 3
    assert "feature error 0.125" in made
    assert 'alt="real neighbour, sample 3, dog"' in made


def test_small_pictures_are_enlarged_without_blur_and_large_ones_smoothly() -> None:
    assert 'class="picture small"' in picture(data_uri(torch.zeros(1, 8, 8)), "a zero")
    large = data_uri(torch.rand(3, 90, 90))
    assert large.startswith("data:image/webp")
    assert 'class="picture"' in picture(large, "noise")
    assert 'alt="cut"' in picture("data:image/png;base64,AAA", "cut")  # cut short, and still an image to the page


@pytest.mark.parametrize(
    "uri", [None, "https://example.org/a.png", "data:text/html;base64,PGI+", 'data:image/png;base64,AA"onerror="x', ""]
)
def test_what_is_no_picture_is_refused(uri: object) -> None:
    with pytest.raises(ValueError, match=r"a picture in explanations\.json is"):
        picture(uri, "nothing")


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
    assert "<script>" not in str(sample({"text": "<script>" * 100}, "a text"))
    assert f'src="{URI}"' in sample({"picture": URI, "text": "no"}, "a zero")
    assert "sample 7" in sample({"index": 7}, "")
