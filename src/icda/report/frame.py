"""The frame of every page: one HTML file that needs nothing beside it, with contents, filters and a switch."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from collections.abc import Sequence

from jinja2 import Environment, StrictUndefined

from icda.report.markup import Markup, element
from icda.report.results import Vocabulary

Part = tuple[str, str, Markup]  # id, title, content


def framed(
    title: str, maker: str, parts: Sequence[Part], vocabulary: Vocabulary, links: Sequence[tuple[str, str]] = ()
) -> str:
    """A page of `parts` under a title; `maker` is the command it comes from, `links` are more entries of the contents.

    >>> "<h1>Cats</h1>" in framed("Cats", "icda audit", [("a", "First", Markup("<p>1</p>"))], Vocabulary())
    True
    """
    template, style, script = (_resource(name) for name in ("page.html", "style.css", "script.js"))
    kinds = (("class", "Class", "All classes", vocabulary.classes), ("group", "Group", "All groups", vocabulary.groups))
    page = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True).from_string(template)
    return page.render(
        title=title,
        maker=maker,
        policy=Markup(policy(style, script)),
        style=Markup(style),
        script=Markup(script),
        entries=[*((place, name) for place, name, _ in parts), *links],
        choosers=[kind for kind in kinds if len(kind[3]) > 1],
        parts=[anchored(part) for part in parts],
    )


def policy(style: str, script: str) -> str:
    """Nothing may load or run but this very script and style, even if some text slipped through unescaped.

    >>> policy("a", "b").split("; ")[0]
    "default-src 'none'"
    """
    style, script = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    own = f"script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data:"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def anchored(part: Part) -> Markup:
    """A part that the contents can lead to."""
    place, _, content = part
    return element("div", content, id=place, class_="part")


def _resource(name: str) -> str:
    return (importlib.resources.files("icda.report") / name).read_text(encoding="utf-8")
