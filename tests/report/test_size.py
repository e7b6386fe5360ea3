"""How large the page of a large run gets, how long it takes to make, and how soon a browser shows it."""

import time

import pytest
from tests.report.synthetic import synthetic_explanations, synthetic_result

from icda.report import write_report

FIRST_PAINT = "performance.getEntriesByType('paint').find(entry => entry.name === 'first-contentful-paint')?.startTime"


@pytest.fixture(scope="module")
def large_page(tmp_path_factory):
    """The page of 100 classes, 10,000 samples and 60 pictures, and the seconds it took to make."""
    result, explanations = synthetic_result(100, 10_000), synthetic_explanations(100, 10_000, tied=60)
    started = time.perf_counter()
    page = write_report(tmp_path_factory.mktemp("page") / "report.html", [result], [explanations])
    return page, time.perf_counter() - started


def test_a_hundred_classes_and_ten_thousand_samples_stay_small_and_fast(large_page):
    page, seconds = large_page
    assert seconds < 10
    assert page.stat().st_size < 15e6


def test_a_browser_shows_the_large_page_within_two_seconds(large_page, browser):
    tab = browser.new_page()
    tab.goto(large_page[0].resolve().as_uri())
    tab.wait_for_function(f"{FIRST_PAINT} !== undefined")
    assert float(tab.evaluate(FIRST_PAINT)) < 2000
    tab.close()
