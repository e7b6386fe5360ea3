"""The audit's verdicts, and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icda.report.formatting import percent
from icda.report.markup import Markup, element, join, section, table
from icda.report.results import as_number, listing, mapping

NAMES = {
    "shortcut": "Shortcut",
    "label_noise": "Wrong labels",
    "long_tail": "Long tail",
    "overlap": "Classes overlap",
    "uninformative": "Uninformative features",
}


def verdict_parts(audited: Mapping[str, Any], level: int) -> Markup:
    """A table of answers, the reasons for each, and the treatment; empty without verdicts and treatment."""
    return join(part(audited, level) for part in (_answers, _treatment))


def _answers(audited: Mapping[str, Any], level: int) -> Markup:
    verdicts = mapping(audited, "verdicts")
    if not verdicts:
        return Markup("")
    rows, reasons = [], []
    for kind, verdict in verdicts.items():
        if not isinstance(verdict, Mapping):
            continue
        name = NAMES.get(kind, kind)
        rows.append([name, verdict.get("answer", ""), percent(as_number(verdict.get("confidence")))])
        reasons.append(element(f"h{min(level + 1, 6)}", name))
        reasons.append(element("ul", *(element("li", reason) for reason in listing(verdict, "reasons"))))
    caption = "One answer per kind of trouble; the confidence is the chance that the nearer of yes and no is right"
    shown = table(caption, ["Kind", "Answer", "Confidence"], rows, names=2)
    lede = [element("p", audited["summary"], class_="lede")] if audited.get("summary") else []
    return section("Verdicts", level, *lede, shown, *reasons)


def _treatment(audited: Mapping[str, Any], level: int) -> Markup:
    treatment = mapping(audited, "treatment")
    if not treatment:
        return Markup("")
    effect = mapping(treatment, "effect")
    said = [element("p", f"{str(treatment.get('name', '')).replace('_', ' ').capitalize()}.", class_="lede")]
    said += [element("p", reason) for reason in listing(treatment, "reasons")]
    if effect:
        said.append(element("p", f"Expected, by heads that have not seen the samples: {effect.get('sentence', '')}."))
    return section("Treatment", level, *said)
