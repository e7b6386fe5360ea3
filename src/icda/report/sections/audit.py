"""The audit: what to try, what ties cost, and which samples to look at."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from icda.report.formatting import percent
from icda.report.frame import Part
from icda.report.markup import Markup, definitions, element, join, section, table
from icda.report.results import as_number, listing, mapping
from icda.report.sections.action import in_short
from icda.report.sections.exhibits import class_filter, doubtful, suspects, vocabulary_of
from icda.report.sections.verdicts import verdict_parts

MATRIX_LIMIT = 20
PAIRS_SHOWN = 15
CLASSES_SHOWN = 30
SAMPLES_SHOWN = 50
SHADES = 20  # steps of the style sheet's scale

Audited = Mapping[str, Any]  # what icda.audit(...).as_dict() gives


def audit(audited: Audited, level: int) -> Markup:
    """The audit of `icda.audit(...).as_dict()` under headings of `level`; empty without one."""
    if not audited:
        return Markup("")
    return section("Audit", level, audit_parts(audited, level + 1))


def audit_parts(audited: Audited, level: int) -> Markup:
    """The parts of the audit, each under a heading of `level`; what the audit lacks is left out."""
    return join(content for _, _, content in anchored_parts(audited, level))


def anchored_parts(audited: Audited, level: int, leave_out: Collection[str] = ()) -> list[Part]:
    """The same, each with its id and title, for the contents of a page."""
    made = ((place, title, part(audited, level)) for place, (title, part) in PARTS.items() if place not in leave_out)
    return [part for part in made if part[2]]


def _recommendation(audited: Audited, level: int) -> Markup:
    findings = [entry for entry in listing(audited, "findings") if isinstance(entry, Mapping)]
    # The verdicts, where there are any, begin with the summary already.
    said = "" if mapping(audited, "verdicts") else audited.get("summary", "")
    children: list[object] = [element("p", said, class_="lede")] if said else []
    for finding in findings:
        children.append(element(f"h{min(level + 1, 6)}", str(finding.get("name", "")).replace("_", " ").capitalize()))
        children.append(element("p", finding.get("advice", "")))
        if not mapping(audited, "verdicts"):  # else the reasons stand there
            children.append(element("ul", *(element("li", reason) for reason in listing(finding, "reasons"))))
    children += [element("p", note, class_="note") for note in listing(audited, "notes")]
    return section("What to try", level, *children) if children else Markup("")


def _costs(audited: Audited, level: int) -> Markup:
    classes = [entry for entry in listing(mapping(audited, "ties"), "classes") if isinstance(entry, Mapping)]
    if not classes:
        return Markup("")
    classes.sort(key=lambda entry: -_gap(entry))
    shown = classes[:CLASSES_SHOWN]
    vocabulary = vocabulary_of(audited)
    rows = [_cost_row(entry) for entry in shown]
    own = [class_filter(vocabulary, entry.get("name", ""), entry.get("tied_to") or "") for entry in shown]
    header = ["Class", "Mostly tied to", "Samples", "Suspected", "Strength", "Right, suspected", "Right, rest"]
    some = f", the {len(shown)} widest gaps of {len(classes)}" if len(classes) > len(shown) else ""
    caption = f"Suspected part of each class beside the rest, by heads that have not seen the sample{some}"
    words = (
        "The suspected part is found with the help of what such heads get wrong, so it looks worse than the true group "
        "would: read its accuracy as a low estimate."
    )
    return section("What ties cost", level, table(caption, header, rows, 2, own), element("p", words, class_="note"))


def _cost_row(entry: Mapping[str, Any]) -> list[object]:
    shares = (percent(as_number(entry.get(key))) for key in ("accuracy_suspected", "accuracy_rest"))
    counts = (_count(entry.get(key)) for key in ("samples", "suspected"))
    return [entry.get("name", ""), entry.get("tied_to") or "", *counts, _figure(entry.get("mean_strength")), *shares]


def _gap(entry: Mapping[str, Any]) -> float:
    part, rest = as_number(entry.get("accuracy_suspected")), as_number(entry.get("accuracy_rest"))
    return 0.0 if part is None or rest is None else rest - part


def _matrix(audited: Audited, level: int) -> Markup:
    matrix = [[as_number(cell) or 0.0 for cell in row] for row in listing(mapping(audited, "ties"), "matrix")]
    names = [str(name) for name in listing(audited, "class_names")]
    if not matrix or len(names) != len(matrix):
        return Markup("")
    body = _square(matrix, names) if len(matrix) <= MATRIX_LIMIT else _pairs(matrix, names)
    return section("Which class is tied to which", level, body)


def _square(matrix: Sequence[Sequence[float]], names: Sequence[str]) -> Markup:
    top = max(max(row) for row in matrix) or 1.0
    rows = []
    for own, values in enumerate(matrix):
        cells = ["" if own == other else _shaded(value, value / top) for other, value in enumerate(values)]
        rows.append([names[own], *cells])
    caption = "Mean strength of a class's samples (rows) towards each other class (columns)"
    return element("div", table(caption, ["Label ↓ Tied to →", *names], rows), class_="confusion")


def _shaded(value: float, share: float) -> Markup:
    return element("span", f"{value:.3f}", class_=f"shade shade-{round(SHADES * math.sqrt(share))}")


def _pairs(matrix: Sequence[Sequence[float]], names: Sequence[str]) -> Markup:
    pairs = [(-value, i, j) for i, row in enumerate(matrix) for j, value in enumerate(row) if i != j]
    rows = [[names[i], names[j], f"{-value:.3f}"] for value, i, j in sorted(pairs)[:PAIRS_SHOWN]]
    caption = f"The strongest mean ties among {len(names)} classes"
    return table(caption, ["Class", "Tied to", "Mean strength"], rows, names=2)


def _tied(audited: Audited, level: int) -> Markup:
    samples = [entry for entry in listing(audited, "samples") if isinstance(entry, Mapping)]
    if not samples:
        return Markup("")
    samples = [entry for entry in samples if (as_number(entry.get("tie")) or 0.0) > 0][:SAMPLES_SHOWN]
    if not samples:
        return section("Samples tied to a wrong class", level, element("p", "No sample is tied to a wrong class."))
    rows = [
        [
            *(entry.get(key, "") for key in ("name", "label", "tied_to", "predicted")),
            _figure(entry.get("strength")),
            _figure(entry.get("tie"), 2),
            "yes" if entry.get("suspected") else "",
        ]
        for entry in samples
    ]
    header = ["Sample", "Label", "Tied to", "Predicted", "Strength", "Tie", "Suspected"]
    suspected = as_number(mapping(audited, "ties").get("suspected"))
    caption = f"The {len(rows)} samples most tied to a wrong class"
    caption += "" if suspected is None else f"; {suspected:,.0f} are suspected in all"
    return section(
        "Samples tied to a wrong class", level, table(caption, header, rows, 4, _row_filters(audited, samples))
    )


def _labels(audited: Audited, level: int) -> Markup:
    noise = mapping(audited, "label_noise")
    samples = [entry for entry in listing(audited, "doubtful_labels") if isinstance(entry, Mapping)][:SAMPLES_SHOWN]
    if not noise:
        return Markup("")
    rows = [
        [
            *(entry.get(key, "") for key in ("name", "label", "tied_to")),
            _figure(entry.get("label_quality"), 4),
            "yes" if entry.get("label_issue") else "",
        ]
        for entry in samples
    ]
    words = (
        f"About {percent(as_number(noise.get('rate')))} of the labels are estimated to be wrong; "
        f"{_count(noise.get('issues'))} are marked by {noise.get('found_by', 'icda')}. A sample of a rare group looks much "
        "like one with a wrong label: look before you delete."
    )
    shown = table(
        f"The {len(rows)} most doubtful labels",
        ["Sample", "Label", "Looks like", "Quality", "Marked"],
        rows,
        3,
        _row_filters(audited, samples),
    )
    return section("Doubtful labels", level, element("p", words), shown if rows else "")


def _row_filters(audited: Audited, samples: Sequence[Mapping[str, Any]]) -> list[dict[str, object]]:
    vocabulary = vocabulary_of(audited)
    return [class_filter(vocabulary, entry.get("label", ""), entry.get("tied_to", "")) for entry in samples]


def _imbalance(audited: Audited, level: int) -> Markup:
    imbalance = mapping(audited, "imbalance")
    if not imbalance:
        return Markup("")
    few = [str(name) for name in listing(imbalance, "few")]
    named = ", ".join(few[:PAIRS_SHOWN]) + (" ..." if len(few) > PAIRS_SHOWN else "")
    facts = [
        ("Largest class over smallest", _figure(imbalance.get("ratio"), 1)),
        ("Entropy of the class shares, of its maximum", _figure(imbalance.get("entropy"), 3)),
        ("Few-shot classes (under 20 samples)", f"{len(few)}{': ' if few else ''}{named}"),
        ("Medium (20 to 100)", _count(imbalance.get("medium"))),
        ("Many-shot (over 100)", _count(imbalance.get("many"))),
    ]
    return section("Class sizes", level, definitions(facts, "facts"))


PARTS: dict[str, tuple[str, Callable[[Audited, int], Markup]]] = {
    "short": ("In short", in_short),
    "verdicts": ("Verdicts and treatment", verdict_parts),
    "suspects": ("Suspects to look at", suspects),
    "check": ("Labels to check", doubtful),
    "advice": ("What to try", _recommendation),
    "costs": ("What ties cost", _costs),
    "matrix": ("Which class is tied to which", _matrix),
    "tied": ("Samples tied to a wrong class", _tied),
    "labels": ("Doubtful labels", _labels),
    "sizes": ("Class sizes", _imbalance),
}


def _figure(value: object, digits: int = 3) -> str:
    number = as_number(value)
    return "" if number is None else f"{number:.{digits}f}"


def _count(value: object) -> str:
    number = as_number(value)
    return "" if number is None else f"{number:,.0f}"
