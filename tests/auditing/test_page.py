import pytest

from icda.auditing.page import render_audit_page
from icda.report.sections.audit import audit

NASTY = '<script>alert("x")</script>'


def audited(classes=2):
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


def test_every_text_is_escaped():
    page = render_audit_page(audited())
    assert page.count("<script") == 1  # the page's own
    for made in (audit(audited(), 2), page.partition("<script")[0]):
        assert "<script" not in made
        assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;" in made


def test_the_widest_gap_comes_first_and_unknown_is_blank():
    made = audit(audited(), 2)
    assert made.index("25.0 %") < made.index(">even<")
    assert "97.5 %" in made
    assert "None" not in made
    assert "nan" not in made


def test_many_classes_are_a_picture_and_their_strongest_pairs_are_listed():
    for classes, many in ((20, False), (30, True)):
        made = audit(audited(classes), 2)
        assert "strongest ties between classes" in made
        assert ('class="pixels"' in made) is many


@pytest.mark.parametrize("empty", [{}, None])
def test_without_an_audit_there_is_no_section(empty):
    assert audit(empty, 2) == ""


def verdicts(**answers):
    kinds = ("shortcut", "label_noise", "long_tail", "overlap", "uninformative")
    return {kind: {"answer": answers.get(kind, "no"), "confidence": 0.9, "reasons": [f"Why {kind}."]} for kind in kinds}


def test_reasons_are_printed_once():
    page = render_audit_page(
        {**audited(), "verdicts": verdicts(label_noise="yes")}
        | {"findings": [{"name": "label_noise", "advice": "Check.", "reasons": ["Why label_noise."], "figures": {}}]}
    )
    assert page.count("Why label_noise.") == 1
    assert page.count("Check.") == 1


def test_the_first_paragraph_says_what_to_do_and_the_command_runs():
    known = {**audited(), "verdicts": verdicts(shortcut="yes", long_tail="cannot tell")}
    known["settings"] = {"samples": 3, "data": "my photos.npz", "options": ["--labels", "kind"]}
    page = render_audit_page(known)
    first = page.partition("In short</h2>")[2]
    assert first.startswith('<p class="lede">There is a shortcut')
    assert "It cannot be told from these data: long tail." in first
    assert "icda fit &#39;my photos.npz&#39; --labels kind --out model" in first
    assert "icda.RobustClassifier().fit(X, y)" in render_audit_page({**audited(), "verdicts": verdicts()})


def test_untied_samples_are_not_among_the_most_tied():
    known = audited()
    known["samples"] = [
        {**known["samples"][0], "name": name, "tie": tie} for name, tie in (("yes", 0.5), ("not", -0.1))
    ]
    made = audit(known, 2)
    assert "The 1 samples most tied" in made
    assert ">not<" not in made
    known["samples"] = known["samples"][1:]
    assert "No sample is tied to a wrong class." in audit(known, 2)


def test_suspects_stand_beside_typical_samples():
    def entry(name, label):
        return {"name": name, "label": label, "tied_to": "class 0", "text": f"text of {name} {NASTY}"}

    pair = {"label": NASTY, "tied_to": "class 0", "count": 7, "suspects": [entry("s", NASTY)]}
    pair |= {"own": [entry("o", NASTY)], "other": [entry("t", "class 0")]}
    known = {**audited(), "exhibits": {"pairs": [pair], "labels": [entry("d", NASTY)]}}
    made = audit(known, 2)
    assert made.index("text of s") < made.index("text of o") < made.index("text of t") < made.index("text of d")
    assert "tied to class 0: 7 samples" in made
    assert 'data-class="c1 c0"' in made
    assert "<script" not in made


def test_parts_that_are_missing_are_left_out():
    made = audit({"summary": "Nothing found."}, 2)
    assert "Nothing found." in made
    assert "<table" not in made


def test_the_page_carries_its_style_and_asks_for_nothing():
    page = render_audit_page(audited())
    assert page.startswith("<!doctype html>")
    assert "default-src 'none'" in page
    assert "<link" not in page
    assert "C 0.0001234" in page
