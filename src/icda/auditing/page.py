"""The audit as a page of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icda.report.markup import Markup, Part, element, framed, section
from icda.report.results import mapping
from icda.report.sections.audit import anchored_parts, vocabulary_of
from icda.report.sections.verdicts import glossary, verdict_parts


def render_audit_page(audited: Mapping[str, Any]) -> str:
    """One self-contained page about what `icda.audit(...).as_dict()` gives.

    >>> "<h1>Audit of 3 samples" in render_audit_page({"settings": {"samples": 3}, "summary": "Nothing found."})
    True
    """
    title = f"Audit of {mapping(audited, 'settings').get('samples', 'some')} samples"
    names = audited.get("class_names") or []
    title += f", {len(names)} classes" if names else ""
    parts: list[Part] = [
        *anchored_parts(audited, 2),
        ("words", "Words on this page", glossary(audited, 2)),
        *settings_part(audited),
    ]
    return framed(title, "icda audit", parts, vocabulary_of(audited))


def settings_part(audited: Mapping[str, Any]) -> list[Part]:
    """How the audit was made; empty where it does not say."""
    settings = mapping(audited, "settings")
    if not settings:
        return []
    shown = ((name, f"{value:.4g}" if isinstance(value, float) else value) for name, value in settings.items())
    listed = ", ".join(f"{name} {value}" for name, value in shown if not isinstance(value, list | tuple))
    return [("settings", "Settings", section("Settings", 2, element("p", f"{listed}.", class_="note")))]


def render_assessment_page(assessed: Mapping[str, Any]) -> str:
    """One self-contained page about what `RobustClassifier` found and did: verdicts and treatment."""
    names = assessed.get("class_names") or []
    title = f"What was found in the data and done about it, {len(names)} classes"
    found = verdict_parts(assessed, 2)
    parts: list[Part] = [("verdicts", "Verdicts and treatment", found)] if found else []
    words: Markup = glossary(assessed, 2)
    return framed(title, "icda RobustClassifier", [*parts, ("words", "Words on this page", words)], vocabulary_of({}))
