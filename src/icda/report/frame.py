"""The frame of every page: one HTML file that needs nothing beside it, with contents, filters and a switch."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from collections.abc import Sequence

from icda.report import controls
from icda.report.markup import Markup, element, join
from icda.report.runs import Vocabulary

Part = tuple[str, str, Markup]  # id, title, content


def framed(
    title: str, maker: str, parts: Sequence[Part], vocabulary: Vocabulary, links: Sequence[tuple[str, str]] = ()
) -> str:
    """A page of `parts` under a title; `maker` is the command it comes from, `links` are more entries of the contents.

    >>> "<h1>Cats</h1>" in framed("Cats", "icda audit", [("a", "First", Markup("<p>1</p>"))], Vocabulary())
    True
    """
    style, script = (_resource(name) for name in ("style.css", "script.js"))
    entries = [*((place, name) for place, name, _ in parts), *links]
    eyebrow = element("p", maker, class_="eyebrow")
    top = element("header", element("div", eyebrow, element("h1", title)), controls.theme_switch())
    aside = element("aside", controls.contents(entries), controls.filters(vocabulary))
    main = element("main", *(anchored(part) for part in parts), id="content", tabindex="-1")
    body = element("body", controls.skip_link(), top, element("div", aside, main, class_="layout"), script)
    page = element("html", element("head", _head(f"{title} – {maker}", style, script)), body, lang="en")
    return f"<!doctype html>\n{page}\n"


def policy(style: str, script: str) -> str:
    """Nothing may load or run but this very script and style, even if some text slipped through unescaped.

    >>> policy("a", "b").split("; ")[0]
    "default-src 'none'"
    """
    style, script = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    own = f"script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data:"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _head(title: str, style: Markup, script: Markup) -> Markup:
    rules = policy(_inside(style), _inside(script))
    return join(
        [
            Markup('<meta charset="utf-8">'),
            # The rules hold for what comes after them, so they come first.
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{rules}">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup('<meta name="color-scheme" content="light dark">'),
            element("title", title),
            style,
        ]
    )


def _resource(name: str) -> Markup:
    text = (importlib.resources.files("icda.report") / name).read_text(encoding="utf-8")
    return element("style" if name.endswith("css") else "script", Markup(text))


def _inside(markup: Markup) -> str:
    return markup.partition(">")[2].rpartition("</")[0]


def anchored(part: Part) -> Markup:
    """A part that the contents can lead to."""
    place, _, content = part
    return element("div", content, id=place, class_="part")
