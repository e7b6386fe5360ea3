from __future__ import annotations

from typing import Any

import pytest

from icda.auditing.page import render_audit_page
from icda.report.sections.audit import audit

NASTY = '<script>alert("x")</script>'


def audited(classes: int = 2) -> dict[str, Any]:
    names = [f"class {k}" for k in range(classes - 1)] + [NASTY]
    cost = {"name": NASTY, "samples": 1200, "suspected": 30, "tied_to": names[0], "mean_strength": 0.5}
    row = {"name": NASTY, "label": NASTY, "tied_to": names[0], "predicted": names[0], "strength": 0.9, "tie": 2.0}
    return {
        "summary": "Found: label noise.",
        "class_names": names,
        "settings": {"samples": 1234, "C": 0.00012345},
        "notes": [NASTY],
        "findings": [{"name": "label_noise", "advice": "Check.", "reasons": [NASTY], "figures": {}}],
        "ties": {
            "classes": [
                {**cost, "name": "even", "accuracy_suspected": None, "accuracy_rest": 0.9},
                {**cost, "accuracy_suspected": 0.25, "accuracy_rest": 0.975},
            ],
            "matrix": [
                [0.0 if i == j else (1 + i + j) / (2 * classes) for j in range(classes)] for i in range(classes)
            ],
            "suspected": 30,
        },
        "imbalance": {"ratio": 12.5, "entropy": 0.5, "few": [NASTY], "medium": 0, "many": 1},
        "label_noise": {"rate": 0.2, "issues": 5, "found_by": "icda"},
        "samples": [{**row, "suspected": True}] * 60,
        "doubtful_labels": [{**row, "label_quality": 0.01, "label_issue": True}],
    }


def test_every_text_is_escaped() -> None:
    page = render_audit_page(audited())
    assert page.count("<script") == 1  # the page's own
    for made in (audit(audited(), 2), page.partition("<script")[0]):
        assert "<script" not in made
        assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;" in made


def test_headings_follow_the_level() -> None:
    made = audit(audited(), 3)
    assert made.startswith("<section><h3>Audit</h3>")
    assert "<h4>What ties cost</h4>" in made
    assert "<h2>" not in made


def test_the_widest_gap_comes_first_and_unknown_is_blank() -> None:
    made = audit(audited(), 2)
    assert made.index("25.0 %") < made.index(">even<")
    assert "97.5 %" in made
    assert "None" not in made
    assert "nan" not in made


def test_rankings_are_cut_and_say_how_many_there_are() -> None:
    made = audit(audited(), 2)
    assert "The 50 samples most tied to a wrong class; 30 are suspected in all" in made
    assert "About 20.0 % of the labels are estimated to be wrong; 5 are marked by icda." in made


def test_many_classes_show_the_strongest_pairs_instead_of_a_matrix() -> None:
    made = audit(audited(30), 2)
    assert "The strongest mean ties among 30 classes" in made
    assert "Label ↓" not in made
    assert "Label ↓" in audit(audited(20), 2)


@pytest.mark.parametrize("empty", [{}, None])
def test_without_an_audit_there_is_no_section(empty: Any) -> None:
    assert audit(empty, 2) == ""


def test_parts_that_are_missing_are_left_out() -> None:
    made = audit({"summary": "Nothing found."}, 2)
    assert "Nothing found." in made
    assert "<table" not in made


def test_the_page_carries_its_style_and_asks_for_nothing() -> None:
    page = render_audit_page(audited())
    assert page.startswith("<!doctype html>")
    assert "default-src 'none'" in page
    assert "<link" not in page
    assert "C 0.0001234" in page
