import base64
import hashlib
import itertools
import json
import re
from html.parser import HTMLParser

import pytest

from icda.report import render_page, write_report
from icda.report.page import RUN_SECTIONS

EVIL = "<script>alert('x')</script>"
VOID = {"meta", "img", "input"}


def result(text="word", seed=0):
    return {
        "task": text,
        "method": text,
        "seed": seed,
        "metrics": {
            "accuracy": 0.7,
            "nll": 0.9,
            "worst_group_accuracy": 0.2,
            "per_class_accuracy": [0.9, 0.5],
            "per_group_accuracy": {text: 0.2, "other": None},
            text: 0.5,
        },
        "selection": text,
        "config": {"model": text, text: {text: [text, 1]}},
        "data_hash": text,
        "environment": {text: text},
        "history": [
            {"epoch": e, "train_loss": 1 / e, "train_accuracy": 0.5, "validation_accuracy": 0.4} for e in (1, 2)
        ],
        "class_names": [text, "cat"],
        "class_counts": [90, 10],
        "confusion": [[9, 1], [5, 5]],
        "seconds": 12.0,
        "split": text,
    }


class Outline(HTMLParser):
    """Checks that every element is closed in order and keeps the headings' levels."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def outline(page):
    parser = Outline()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


@pytest.mark.parametrize("runs", [1, 3])
def test_text_from_data_is_shown_and_never_run(runs):
    page = render_page([result(EVIL, seed) for seed in range(runs)])
    assert outline(page).seen.count("script") == 1  # the page's own
    assert EVIL not in page
    assert page.count("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;") >= 10


@pytest.mark.parametrize("runs", [1, 3])
def test_the_page_asks_the_network_for_nothing(runs):
    page = render_page([result(seed=seed) for seed in range(runs)])
    attributes = outline(page).attributes
    assert not {name for name, _ in attributes} & {"srcset", "style", "action"}
    assert not any(name.startswith("on") for name, _ in attributes)
    assert all(value.startswith("data:image/") for name, value in attributes if name == "src")
    assert all(value.startswith("#") for name, value in attributes if name == "href")
    assert not re.search(r"https?://|@import|url\(", page)


def test_only_this_very_script_and_style_may_run():
    page = render_page([result()])
    rules = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in rules
    assert rules.startswith("default-src 'none'; ")
    assert "unsafe" not in rules


@pytest.mark.parametrize("runs", [1, 3])
def test_headings_descend_one_level_at_a_time(runs):
    seen = outline(render_page([result(seed=seed) for seed in range(runs)])).seen
    levels = [int(tag[1]) for tag in seen if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert seen.count("caption") == seen.count("table") > 0


def test_a_full_run_fills_every_section(full_result, full_explanations):
    page = render_page([full_result], [full_explanations | {"audit": {"summary": "All is well."}}])
    for name, (title, _) in RUN_SECTIONS.items():
        assert f'<div id="{name}" class="part"><section><h2>{title}</h2>' in page
        assert f'<a href="#{name}">{title}</a>' in page
    assert "Comparison" not in page


@pytest.mark.parametrize("name", [name for name in RUN_SECTIONS if name != "what"])
@pytest.mark.parametrize(
    "empty", [{}, {"metrics": {}, "config": {}, "environment": {}, "history": [], "confusion": []}]
)
def test_a_section_without_data_is_left_out(name, empty):
    assert f'id="{name}"' not in render_page([{"task": "waterbirds", "method": "icda", **empty}])


def test_ids_stay_unique_when_runs_share_a_page(full_result, full_explanations):
    page = render_page([full_result, full_result | {"method": "ce"}], [full_explanations, full_explanations])
    places = re.findall(r' id="([^"]+)"', page)
    assert len(places) == len(set(places))
    assert {value for name, value in outline(page).attributes if name == "href"} <= {f"#{place}" for place in places}


def test_every_picture_has_words(full_result, full_explanations):
    page = render_page([full_result], [full_explanations])
    assert page.count("<img ") == len(re.findall(r'<img [^>]*alt="[^"]+"', page)) > 30
    assert page.count('<svg class="chart"') == len(re.findall(r'<svg class="chart"[^>]*aria-label="[^"]+"', page)) > 3


def test_several_results_are_compared_and_each_can_be_opened():
    page = render_page([result(seed=seed) for seed in range(3)])
    assert "<h2>Comparison</h2>" in page
    assert "70.00 ± 0.00" in page
    assert page.count('<details class="run"') == 3


def test_a_result_with_only_task_and_method_makes_a_page_and_none_writes_none(tmp_path):
    page = render_page([{"task": "waterbirds", "method": "icda"}])
    outline(page)
    assert "<h1>icda on waterbirds</h1>" in page
    with pytest.raises(ValueError, match="at least one result"):
        write_report(tmp_path / "report.html", [])
    assert list(tmp_path.iterdir()) == []


def test_the_page_works_from_what_json_gives_back_and_with_names_that_utf8_cannot_carry(tmp_path):
    written = write_report(tmp_path / "new" / "report.html", [json.loads(json.dumps(result()))])
    assert written.read_text(encoding="utf-8") == render_page([result()])
    written = write_report(str(tmp_path / "report.html"), [result("caf\udce9 Ünïcode")])
    assert "Ünïcode" in written.read_text(encoding="utf-8")
