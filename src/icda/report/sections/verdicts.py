"""The audit's verdicts, and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icda.report.formatting import decimal
from icda.report.markup import NOTHING, Markup, element, join, section, table
from icda.report.results import listing, mapping

NAMES = {
    "shortcut": "Shortcut",
    "label_noise": "Wrong labels",
    "long_tail": "Long tail",
    "overlap": "Classes overlap",
    "uninformative": "Uninformative features",
}
MEANINGS = {
    "shortcut": "something that goes with the class in these data, such as a background, and that a model would follow",
    "label_noise": "labels that say another class than the sample shows",
    "long_tail": "classes with far fewer samples than others",
    "overlap": "classes that these features do not tell apart well",
    "uninformative": "features that say nothing about the class",
}


def verdict_parts(audited: Mapping[str, Any], level: int) -> Markup:
    """A table of answers, the reasons for each, and the treatment; empty without verdicts and treatment."""
    return join(part(audited, level) for part in (_answers, _treatment))


def _answers(audited: Mapping[str, Any], level: int) -> Markup:
    verdicts = mapping(audited, "verdicts")
    if not verdicts:
        return NOTHING
    rows, reasons = [], []
    for kind, verdict in verdicts.items():
        if not isinstance(verdict, Mapping):
            continue
        name = NAMES.get(kind, kind)
        rows.append([name, verdict.get("answer", ""), decimal(verdict.get("confidence"), 2)])
        meant = f": {MEANINGS[kind]}" if kind in MEANINGS else ""
        reasons.append(element("p", element("strong", name), f"{meant}."))
        reasons.append(element("ul", *(element("li", reason) for reason in listing(verdict, "reasons"))))
    caption = (
        "One answer per kind of trouble; the confidence of the first two is how often such an answer was right on data "
        "with known troubles"
    )
    shown = table(caption, ["Kind", "Answer", "Confidence"], rows, names=2)
    # A whole audit says it under "In short" already.
    said = "" if mapping(audited, "ties") else audited.get("summary")
    lede = [element("p", said, class_="lede")] if said else []
    why = element("details", element("summary", "Why: the figures behind each answer"), *reasons)
    return section("Verdicts", level, *lede, shown, why)


def _treatment(audited: Mapping[str, Any], level: int) -> Markup:
    treatment = mapping(audited, "treatment")
    if not treatment:
        return NOTHING
    effect = mapping(treatment, "effect")
    name = str(treatment.get("name", "")).replace("_", " ").capitalize()
    said = [element("p", str(treatment.get("sentence") or f"{name}."), class_="lede")]
    said += [element("p", reason) for reason in listing(treatment, "reasons")]
    if effect:
        said.append(element("p", f"Expected, by heads that have not seen the samples: {effect.get('sentence', '')}."))
    return section("Treatment", level, *said)
