import shutil

import pytest

from icda_bench.cost.report_size import first_paint, measure_report, synthetic_explanations, synthetic_result


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


def test_a_hundred_classes_and_ten_thousand_samples_stay_small_and_fast() -> None:
    found = measure_report()
    assert (found.classes, found.samples, found.tied) == (100, 10_000, 60)
    assert found.seconds < 10
    assert found.megabytes < 15
    if shutil.which("chromium"):
        assert found.first_paint is not None
        assert found.first_paint < 2


def test_without_a_browser_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert first_paint(tmp_path / "page.html") is None  # type: ignore[operator]
