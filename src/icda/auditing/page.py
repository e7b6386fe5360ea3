"""The audit as a page of its own."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from typing import Any

from icda.report.markup import Markup, element, join
from icda.report.results import mapping
from icda.report.sections.audit import audit_parts
from icda.report.sections.verdicts import verdict_parts

# No script, no request: even if some text slipped through unescaped, a browser would not act on it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
# What the report's own frame, a column of contents and anchored parts, would set.
FRAME = "main { max-width: 76rem; margin-inline: auto; } main > section { margin-top: 2.2rem; }"


def render_audit_page(audited: Mapping[str, Any]) -> str:
    """One self-contained page about what `icda.audit(...).as_dict()` gives.

    >>> "<h1>Audit of 3 samples" in render_audit_page({"settings": {"samples": 3}, "summary": "Nothing found."})
    True
    """
    title = f"Audit of {mapping(audited, 'settings').get('samples', 'some')} samples"
    names = audited.get("class_names") or []
    title += f", {len(names)} classes" if names else ""
    head = join(_head(title))
    top = element("header", element("div", element("p", "icda audit", class_="eyebrow"), element("h1", title)))
    body = element("body", top, element("main", audit_parts(audited, 2), _settings(audited)))
    return f"<!doctype html>\n{element('html', element('head', head), body, lang='en')}\n"


def _settings(audited: Mapping[str, Any]) -> Markup:
    settings = mapping(audited, "settings")
    if not settings:
        return Markup("")
    shown = ((name, f"{value:.4g}" if isinstance(value, float) else value) for name, value in settings.items())
    listed = ", ".join(f"{name} {value}" for name, value in shown)
    return element("p", f"Settings: {listed}.", class_="note")


def render_assessment_page(assessed: Mapping[str, Any]) -> str:
    """One self-contained page about what `RobustClassifier` found and did: verdicts and treatment."""
    names = assessed.get("class_names") or []
    title = f"What was found in the data and done about it, {len(names)} classes"
    head = join(_head(title))
    top = element(
        "header", element("div", element("p", "icda RobustClassifier", class_="eyebrow"), element("h1", title))
    )
    body = element("body", top, element("main", verdict_parts(assessed, 2)))
    return f"<!doctype html>\n{element('html', element('head', head), body, lang='en')}\n"


def _head(title: str) -> list[Markup]:
    style = Markup((importlib.resources.files("icda.report") / "style.css").read_text(encoding="utf-8"))
    return [
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        element("title", f"{title} – icda"),
        element("style", style, Markup(FRAME)),
    ]
