"""How large the page of a large run gets, how long it takes to make, and how soon a browser shows it."""

import time
from pathlib import Path
from typing import Any

import pytest
from tests.report.synthetic import synthetic_explanations, synthetic_result

from icda.report import write_report

FIRST_PAINT = "performance.getEntriesByType('paint').find(entry => entry.name === 'first-contentful-paint')?.startTime"


def test_the_synthetic_run_agrees_with_itself() -> None:
    result = synthetic_result(classes=10, samples=500)
    rows = result["confusion"]
    assert [row[i] / sum(row) for i, row in enumerate(rows)] == pytest.approx(result["metrics"]["per_class_accuracy"])
    assert sum(map(sum, rows)) == 500
    assert result == synthetic_result(classes=10, samples=500)


def test_synthetic_explanations_have_every_part_and_the_samples_asked_for() -> None:
    found = synthetic_explanations(classes=5, samples=100, tied=7)
    assert len(found["tied"]) == 7
    assert sum(map(sum, found["margins"]["counts"])) == 100
    assert {"margins", "strengths", "variances", "tied", "gradcam", "counterfactuals"} <= set(found)


@pytest.fixture(scope="module")
def large_page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The page of 100 classes, 10,000 samples and 60 pictures, and the seconds it took to make."""
    result, explanations = synthetic_result(100, 10_000), synthetic_explanations(100, 10_000, tied=60)
    started = time.perf_counter()
    page = write_report(tmp_path_factory.mktemp("page") / "report.html", [result], [explanations])
    return page, time.perf_counter() - started


def test_a_hundred_classes_and_ten_thousand_samples_stay_small_and_fast(large_page: tuple[Path, float]) -> None:
    page, seconds = large_page
    assert seconds < 10
    assert page.stat().st_size < 15e6


def test_a_browser_shows_the_large_page_within_two_seconds(large_page: tuple[Path, float], browser: Any) -> None:
    tab = browser.new_page()
    tab.goto(large_page[0].resolve().as_uri())
    tab.wait_for_function(f"{FIRST_PAINT} !== undefined")
    assert float(tab.evaluate(FIRST_PAINT)) < 2000
    tab.close()
