"""The pages of `icda audit` and `icda fit` as a reader meets them, in Debian's Chromium."""

import numpy as np
import pytest
from PIL import Image

import icda
from icda.data.embedding.samples import Reads, Samples
from icda.report.sections.audit import PARTS
from icda.serving.fitting import fit_model
from icda.serving.page import render_fit_page
from support import column

EVIL = "<script>alert(1)</script>"
LONG = "a_class_whose_name_goes_on_without_a_single_space_in_it_for_long"


@pytest.fixture(scope="module")
def pages(tmp_path_factory, made):
    """An audit of three classes with pictures, a fit against a shortcut with pictures, a fit without any."""
    folder = tmp_path_factory.mktemp("pages")
    generator = np.random.default_rng(0)
    X, y = made.numbers()
    names = np.array([EVIL, LONG, "fly"])[y]
    names[:6] = np.roll(names[:6], 1)  # wrong labels, to be seen
    paths = []
    for row in range(1500):
        paths.append(folder / f"{row}.png")
        Image.fromarray(generator.integers(0, 255, (64, 96, 3), dtype=np.uint8)).save(paths[-1])
    audit = icda.audit(X, names, sample_names=[f"{path.parent.name}/{path.name}" for path in paths[:240]])
    audit.to_html(folder / "audit.html", images=paths[:240])
    X, y, _ = made.shortcut()
    labels, ids = np.array(["cat", EVIL])[y], [path.name for path in paths]
    data = Samples(Reads("image", 40, "efficientnet_lite0"), ids, inputs=paths, features=X, labels=labels)
    (folder / "fit.html").write_text(render_fit_page(fit_model(data), "my model", "photos"), encoding="utf-8")
    plain = fit_model(Samples(Reads("features", 40), ids[:200], features=X[:200], labels=labels[:200]), "icda")
    (folder / "plain.html").write_text(render_fit_page(plain, "model", "table.csv"), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in ("audit", "fit", "plain")}


@pytest.mark.parametrize("name", ["audit", "fit"])
def test_the_contents_lead_to_every_part_and_every_picture_loads(open_page, name):
    page = open_page(name)
    links = page.locator("nav a")
    assert links.count() >= 10 if name == "audit" else links.count() == 5
    for number in range(links.count()):
        place = links.nth(number).get_attribute("href")
        links.nth(number).click()
        assert page.locator(f"{place} h2").first.is_visible()
    assert page.evaluate("[...document.images].length") > 10
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")


def test_the_audit_has_every_part(open_page):
    page = open_page("audit")
    for place in PARTS:
        if place != "advice":  # nothing was found that needs any
            assert page.locator(f"#{place}").count() == 1, place
    assert page.locator("#short .command").inner_text() == "icda.RobustClassifier().fit(X, y)"
    assert page.locator("#suspects .trio").first.locator("img").count() > 4


def test_the_reasons_are_folded_and_open(open_page):
    page = open_page("audit")
    reason = page.locator("#verdicts details li").first
    assert not reason.is_visible()
    page.locator("#verdicts summary").click()
    assert reason.is_visible()


def test_a_ranking_is_sorted_by_click(open_page):
    page = open_page("audit")
    page.locator("#labels thead th", has_text="Quality").locator("button").click()
    page.locator("#labels thead th", has_text="Quality").locator("button").click()
    shown = [float(text) for text in column(page, "#labels table", 3)]
    assert shown == sorted(shown, reverse=True)
    assert len(set(shown)) > 5


def test_a_class_is_filtered_everywhere(open_page):
    page = open_page("audit")
    everything = column(page, "#tied table", 0)
    page.select_option("#filter-class", label="fly")
    for table, columns in (("#tied table", (1, 2)), ("#labels table", (1, 2)), ("#costs table", (0, 1))):
        pairs = list(zip(*(column(page, table, position) for position in columns), strict=True))
        assert pairs
        assert all("fly" in pair for pair in pairs)
    assert page.locator("#suspects .block.filtered").count() > 0
    page.locator("#clear").click()
    assert column(page, "#tied table", 0) == everything


@pytest.mark.parametrize("name", ["audit", "fit", "plain"])
@pytest.mark.parametrize("width", [360, 820, 1280])
def test_the_page_never_scrolls_sideways(open_page, name, width):
    page = open_page(name, width=width)
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", ["audit", "fit"])
def test_a_class_called_script_is_shown_and_nothing_else_can_run(open_page, browser, pages, name, tmp_path):
    page = open_page(name)
    assert EVIL in page.locator("#filter-class option").all_inner_texts()
    assert page.locator("script").count() == 1
    hole = "<script>window.hacked = 1</script><img src='data:,' onerror='window.hacked = 1'>"
    forged = tmp_path / "forged.html"
    forged.write_text(pages[name].read_text(encoding="utf-8").replace("<main ", f"{hole}<main ", 1), encoding="utf-8")
    other = browser.new_page()
    other.goto(forged.as_uri())
    other.wait_for_timeout(200)
    assert other.evaluate("window.hacked === undefined")
    assert other.locator("#theme").is_visible()  # the page's own script ran
    other.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_first_screen_of_a_fit_shows_both_lots_of_samples(open_page, width):
    """What makes a shortcut plain must not stand below sentences: pictures of both lots side by side."""
    page = open_page("fit", width)
    lots = page.locator("#result .contrast").first.locator("> div")
    left, right = (lots.nth(k).bounding_box() for k in (0, 1))
    assert abs(left["y"] - right["y"]) < 1
    assert left["x"] + left["width"] <= right["x"]
    assert right["x"] + right["width"] <= width
    assert left["y"] < 800
    assert lots.nth(0).locator("img").count() == lots.nth(1).locator("img").count() == 6
    assert "Usual" in lots.nth(0).inner_text()
    assert "Suspected" in lots.nth(1).inner_text()
    if width == 1280:
        below = page.locator("#result .command").bounding_box()
        assert below["y"] + below["height"] <= 1000  # the next step can be seen without much scrolling


def test_the_fit_says_before_and_after_and_how_to_go_on(open_page):
    page = open_page("fit")
    headings = page.locator("main > .part > section > h2").all_inner_texts()
    parts = ["The result", "What was found", "What was done and brought", "What to check", "How to use it"]
    assert headings == parts
    assert column(page, "#figures table", 0) == ["Accuracy", "Worst class", "Worst suspected group"]
    assert page.locator("#groups tbody tr").count() == 4
    bars = page.locator(".before-after strong").all_inner_texts()
    assert float(bars[1].rstrip(" %")) > float(bars[0].rstrip(" %")) + 20
    assert page.locator("details[open]").count() == 0
    before, after = (column(page, "#figures table", position)[2] for position in (3, 4))
    assert float(after.rstrip(" %")) > float(before.rstrip(" %")) + 20
    assert "icda predict 'my model' new_photos --out predictions.csv" in page.locator("#use").inner_text()
    assert "disagree" in page.locator("#check").inner_text()
    assert "shortcut" in page.locator("#result").inner_text()


def test_without_a_script_the_page_is_complete(open_page):
    page = open_page("audit", java_script_enabled=False)
    assert page.locator("#tied tbody tr").count() > 5
    assert page.locator("#words").is_visible()
    assert not page.locator("#filters").is_visible()
