"""The report as a reader meets it: Debian's Chromium opens pages of runs that were really trained."""

from pathlib import Path

import pytest
from tests.report.synthetic import synthetic_explanations, synthetic_result

from icda.cli.report import explain_missing
from icda.explain.run import PARTS
from icda.report import FoundRun, read_folder, write_report
from icda.report.page import COMMON_SECTIONS, RUN_SECTIONS
from icda.training import TrainConfig, train
from support import column

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Real runs of one epoch with every part of the explanations; one class is called like a script."""
    runs = {}
    for task, method in (("digits_lt", "icda"), ("digits_lt", "cross_entropy"), ("digits_coloured", "icda")):
        folder = tmp_path_factory.mktemp("runs") / "run"
        train(TrainConfig(task=task, method=method, epochs=1, out=str(folder)))
        found = explain_missing(read_folder(folder), PARTS)
        names = [EVIL if number == 4 else name for number, name in enumerate(found.result["class_names"])]
        runs[task, method] = found._replace(result={**found.result, "class_names": names})
    return runs


@pytest.fixture(scope="session")
def pages(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")

    def write(name: str, *runs: FoundRun) -> Path:
        return write_report(folder / f"{name}.html", [run.result for run in runs], [run.explanations for run in runs])

    many = FoundRun(synthetic_result(40, 2000), synthetic_explanations(40, 2000, 30))
    audited = trained["digits_lt", "icda"]
    audited = audited._replace(explanations={**(audited.explanations or {}), "audit": {"summary": "All is well."}})
    return {
        "run": write("run", audited),
        "groups": write("groups", trained["digits_coloured", "icda"]),
        "comparison": write("comparison", *trained.values()),
        "many": write("many", many),
    }


def test_every_section_is_there_and_every_picture_loads(open_page):
    page = open_page("run")
    for name, (title, _) in RUN_SECTIONS.items():
        if name == "groups":  # this task has none
            continue
        heading = page.locator(f"#{name} > section > h2")
        assert heading.inner_text() == title
        page.locator(f'nav a[href="#{name}"]').click()
        assert heading.is_visible()
    assert page.locator("#groups").count() == 0
    assert page.evaluate("[...document.images].length") > 30
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")


def test_a_table_is_sorted_by_click_and_by_enter(open_page):
    page = open_page("run")
    table = "#classes table"
    heading = page.locator(f"{table} thead th", has_text="Accuracy")
    button = heading.locator("button")
    position = page.locator(f"{table} thead th").all_inner_texts().index(heading.inner_text())
    button.click()
    shares = [float(text.rstrip(" %")) for text in column(page, table, position)]
    assert shares == sorted(shares)
    assert len(set(shares)) > 1
    assert heading.get_attribute("aria-sort") == "ascending"
    button.focus()
    page.keyboard.press("Enter")
    shares = [float(text.rstrip(" %")) for text in column(page, table, position)]
    assert shares == sorted(shares, reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"
    page.locator(f"{table} thead th button").first.click()
    assert column(page, table, 0) == [EVIL, *"012356789"]
    assert page.locator(f"{table} [aria-sort]").count() == 1


def test_a_class_is_filtered_across_all_sections(open_page):
    page = open_page("run")
    everything = column(page, "#classes table", 0)
    tip = page.locator("#margins .hit").nth(20).get_attribute("data-tip")
    page.select_option("#filter-class", label="3")
    assert column(page, "#classes table", 0) == ["3"]
    assert column(page, "#margins table", 0) == ["3"]
    mistakes = "#confusion table[data-sortable]"
    pairs = list(zip(column(page, mistakes, 0), column(page, mistakes, 1), strict=True))
    assert all("3" in pair for pair in pairs)
    assert page.evaluate(
        """[...document.querySelectorAll('#tied .card:not(.filtered)')]
             .every(card => [...card.querySelectorAll('dd')].slice(0, 2).some(word => word.textContent === '3'))"""
    )
    assert page.evaluate("document.querySelectorAll('#tied .card.filtered').length") > 0
    assert page.locator("#confusion .shade.dim").count() == 81  # ten by ten less a row and a column
    total = page.evaluate(
        """[...document.querySelectorAll('#margins .hit')]
             .reduce((sum, bar) => sum + parseInt(bar.dataset.tip.split('\\n')[1]), 0)"""
    )
    assert total == 50  # test samples of one digit
    assert "rows and pictures shown" in page.locator("#filtered").inner_text()
    page.locator("#clear").click()
    assert column(page, "#classes table", 0) == everything
    assert page.locator("#margins .hit").nth(20).get_attribute("data-tip") == tip
    assert page.locator(".filtered").count() == 0


def test_a_group_is_filtered_across_all_sections(open_page):
    page = open_page("groups")
    names = column(page, "#groups table", 0)
    assert len(names) == 4
    page.select_option("#filter-group", label=names[1])
    assert column(page, "#groups table", 0) == [names[1]]
    shown = page.locator("#gradcam .card:not(.filtered)")
    assert 0 < shown.count() < page.locator("#gradcam .card").count()
    assert all(names[1] in text for text in shown.all_inner_texts())


def test_the_theme_is_switched_by_click_and_key_and_remembered(open_page):
    page = open_page("run", color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    button = page.get_by_role("button", name="Dark")
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    dark = page.evaluate(paper)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(18, 22, 27)")
    assert button.get_attribute("aria-pressed") == "true"
    page.reload()
    assert page.evaluate(paper) == dark
    button.focus()
    page.keyboard.press("Space")
    assert page.evaluate(paper) == light
    assert open_page("run", color_scheme="dark").evaluate(paper) == dark


@pytest.mark.parametrize("name", ["run", "groups", "comparison", "many"])
@pytest.mark.parametrize("width", [360, 390, 820, 1280])
def test_the_page_never_scrolls_sideways(open_page, name, width):
    page = open_page(name, width=width)
    page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_class_called_script_is_shown_and_nothing_else_can_run(open_page):
    page = open_page("run")
    assert EVIL in column(page, "#classes table", 0)
    assert EVIL in page.locator("#filter-class option").all_inner_texts()
    page.locator("#confusion .shade").nth(4).hover()
    assert EVIL in page.locator("#tip").inner_text()
    assert page.locator("script").count() == 1


def test_a_script_that_slipped_in_would_be_stopped(browser, pages, tmp_path):
    text = pages["run"].read_text(encoding="utf-8")
    hole = "<script>window.hacked = 1</script><img src='data:,' onerror='window.hacked = 1'>"
    forged = tmp_path / "forged.html"
    forged.write_text(text.replace("<main ", f"{hole}<main ", 1), encoding="utf-8")
    page = browser.new_page()
    page.goto(forged.as_uri())
    page.wait_for_timeout(200)
    assert page.evaluate("window.hacked === undefined")
    assert page.locator("#theme").is_visible()  # the page's own script ran
    page.close()


def test_values_can_be_read_with_the_keyboard_alone(open_page):
    page = open_page("run")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").is_visible()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    plot = page.locator("#curves .plot").first
    plot.focus()
    page.keyboard.press("ArrowRight")
    spoken = page.locator("[role=status].unseen").inner_text()
    assert "Epoch 0" in spoken
    assert "training:" in spoken
    assert page.locator("#tip").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#tip").is_visible()
    square = page.locator("#confusion .plot").first
    square.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert "true 1, predicted 1" in page.locator("[role=status].unseen").inner_text()


def test_pointing_shows_values_in_charts_and_in_the_square_of_many_classes(open_page):
    page = open_page("many")
    square = page.locator("#confusion .square")
    square.scroll_into_view_if_needed()
    size = square.bounding_box()["width"] / 40
    square.hover(position={"x": 3.5 * size, "y": 2.5 * size})
    assert page.locator("#tip").inner_text().startswith("true class 2, predicted class 3\n")
    square.focus()
    page.keyboard.press("ArrowDown")
    assert "true class 3, predicted class 3" in page.locator("#tip").inner_text()
    page.select_option("#filter-class", label="class 7")
    assert square.locator(".band").count() == 2
    page.locator("#margins .hit").nth(20).hover()
    assert "samples" in page.locator("#tip").inner_text()
    page.locator("#curves .hit").nth(3).hover(force=True)
    assert page.locator("#tip").inner_text().startswith("Epoch 3")


def test_runs_are_compared_side_by_side(open_page):
    page = open_page("comparison")
    for name, (title, _) in COMMON_SECTIONS.items():
        assert page.locator(f"#{name} > section > h2").inner_text() == title
    assert page.locator("#gradcam .heat-row").first.locator("img").count() == 3  # the sample and two methods
    heading = page.locator("#comparison thead th", has_text="Balanced").first
    assert heading.is_visible()
    page.locator("#comparison .chooser label", has_text="Balanced").click()
    assert not heading.is_visible()
    assert not page.locator("#run-1-run").evaluate("details => details.open")
    page.evaluate("location.hash = 'run-2-confusion'")
    page.wait_for_function("document.getElementById('run-2-run').open")
    assert page.locator("#run-2-confusion h4").is_visible()


def test_without_a_script_the_page_is_complete(open_page):
    page = open_page("run", java_script_enabled=False)
    for name in RUN_SECTIONS:
        if name != "groups":
            assert page.locator(f"#{name}").is_visible()
    assert page.locator("#curves svg polyline.line").count() > 0
    assert page.locator("#classes tbody tr").count() == 10
    assert not page.locator("#theme").is_visible()
    assert not page.locator("#filters").is_visible()


def test_paper_gets_everything_but_the_controls(open_page):
    page = open_page("comparison")
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...document.querySelectorAll('details')].every(details => details.open)")
    assert not page.locator("aside").is_visible()
    assert not page.locator("#theme").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert not page.locator("#run-1-run").evaluate("details => details.open")
