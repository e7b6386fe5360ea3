"""The frame of every page: one HTML file that needs nothing beside it, with contents, filters and a switch."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from collections.abc import Mapping, Sequence

from icda.report.markup import NOTHING, Markup, element, join
from icda.report.results import Vocabulary

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
    top = element("header", element("div", eyebrow, element("h1", title)), theme_switch())
    aside = element("aside", contents(entries), filters(vocabulary))
    main = element("main", *(anchored(part) for part in parts), id="content", tabindex="-1")
    body = element("body", skip_link(), top, element("div", aside, main, class_="layout"), script)
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


def skip_link() -> Markup:
    """The first stop of the keyboard: past everything that is the same on every page."""
    return element("a", "Skip to the content", href="#content", class_="skip")


def theme_switch() -> Markup:
    """A button that the script unhides: without a script the page follows the system."""
    return element("button", "Dark", type="button", id="theme", class_="button", hidden="", aria_pressed="false")


def contents(entries: Sequence[tuple[str, str]]) -> Markup:
    """Links to the parts of the page, given as (id, title)."""
    links = (element("li", element("a", title, href=f"#{place}")) for place, title in entries)
    return element("nav", element("p", "Contents", class_="small-title"), element("ol", *links), aria_label="Contents")


def filters(vocabulary: Vocabulary) -> Markup:
    """Choosers of a class and a group that work on all parts at once; the script unhides them."""
    choosers = [
        _chooser(kind, title, names)
        for kind, title, names in (
            ("class", "Class", vocabulary.classes),
            ("group", "Group", vocabulary.groups),
        )
        if len(names) > 1
    ]
    if not choosers:
        return NOTHING
    clear = element("button", "Clear", type="button", id="clear", class_="button", disabled="")
    status = element("p", id="filtered", class_="note", role="status")
    inner = join([element("p", "Filter", class_="small-title"), *choosers, clear, status])
    return element("div", inner, id="filters", role="search", aria_label="Filter all sections", hidden="")


def _chooser(kind: str, title: str, names: Mapping[str, str]) -> Markup:
    options = [element("option", f"All {title.lower()}{'es' if title.endswith('s') else 's'}", value="")]
    options += [element("option", name, value=token) for name, token in names.items()]
    place = f"filter-{kind}"
    return element("label", element("span", title), element("select", *options, id=place, data_kind=kind), for_=place)
