"""HTML that cannot forget to escape, where all is text unless it is `Markup`; and the page around it, in one file."""

import base64
import hashlib
import importlib.resources
import re
from collections.abc import Iterable, Mapping, Sequence

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from icda.report.results import Vocabulary

NOTHING = Markup("")
Part = tuple[str, str, Markup]  # id, title, content


def join(parts: Iterable[object]) -> Markup:
    """Parts one after the other, escaped where they are text."""
    return NOTHING.join(map(escape, parts))


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """An HTML element around its children.

    A trailing underscore in an attribute's name is dropped and others become hyphens; an attribute of None is left out.
    """
    return Markup(f"<{tag}{_opening(attributes)}>{join(children)}</{tag}>")


def void(tag: str, **attributes: object) -> Markup:
    """An HTML element that has no children and no end tag."""
    return Markup(f"<{tag}{_opening(attributes)}>")


def section(title: str, level: int, *children: object) -> Markup:
    return element("section", element(f"h{level}", title), *children)


def captioned(caption: str, *children: object) -> Markup:
    return element("figure", element("figcaption", caption), *children)


def note(words: object) -> Markup:
    """A paragraph in small print; nothing without words."""
    return element("p", words, class_="note") if words else NOTHING


def table(
    caption: str,
    header: Sequence[object],
    rows: Iterable[Sequence[object]],
    names: int = 1,
    attributes: Sequence[Mapping[str, object]] | None = None,
    sortable: bool = True,
) -> Markup:
    """A table that scrolls sideways when it is wider than the screen.

    The first `names` columns are words; the first is each row's heading. The others are figures, set to the right.
    `attributes` are those of each row, as the filters need them. The page's script lets a reader sort the rows by any
    column, unless `sortable` is off because the rows' order has a meaning.
    """

    def css(position: int) -> str | None:
        return "name" if position < names else None

    head = join(element("th", cell, scope="col", class_=css(i)) for i, cell in enumerate(header))
    body = []
    for number, (first, *others) in enumerate(rows):
        cells = (element("td", cell, class_=css(i)) for i, cell in enumerate(others, start=1))
        own = attributes[number] if attributes is not None else {}
        body.append(element("tr", element("th", first, scope="row", class_="name"), *cells, **own))
    inner = (
        element("caption", element("span", caption)),
        element("thead", element("tr", head)),
        element("tbody", *body),
    )
    drawn = element("table", *inner, data_sortable="" if sortable else None)
    return element("div", drawn, class_="scroll", role="region", aria_label=caption, tabindex="0")


def definitions(pairs: Iterable[tuple[object, object]], css: str) -> Markup:
    return element("dl", *(element("div", element("dt", k), element("dd", v)) for k, v in pairs), class_=css)


def _opening(attributes: Mapping[str, object]) -> str:
    named = ((name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items() if value is not None)
    return "".join(f' {name}="{escape(value)}"' for name, value in named)


def framed(
    title: str, maker: str, parts: Sequence[Part], vocabulary: Vocabulary, links: Sequence[tuple[str, str]] = ()
) -> str:
    """A page of `parts` under a title; `maker` is the command it comes from, `links` are more entries of the contents."""
    folder = importlib.resources.files("icda.report")
    files = ("page.html", "style.css", "script.js")
    template, style, script = ((folder / name).read_text(encoding="utf-8") for name in files)
    style = style_sheet(style)
    kinds = (("class", "Class", "All classes", vocabulary.classes), ("group", "Group", "All groups", vocabulary.groups))
    page = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True).from_string(template)
    return page.render(
        title=title,
        maker=maker,
        policy=Markup(content_policy(style, script)),
        style=Markup(style),
        script=Markup(script),
        entries=[*((place, name) for place, name, _ in parts), *links],
        choosers=[kind for kind in kinds if len(kind[3]) > 1],
        parts=[anchored(part) for part in parts],
    )


def style_sheet(style: str) -> str:
    """The style, with its dark theme also where the system is dark and the reader has chosen none."""
    dark = re.search(r':root\[data-theme="dark"\] \{(.*?)\}', style, re.DOTALL)
    assert dark is not None
    return style.replace("/* as the dark theme below: markup.py puts it here */", dark[1])


def content_policy(style: str, script: str, connect: bool = False) -> str:
    """Nothing may load or run but this script and style; with `connect` the script may talk to its own server."""
    style, script = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script))
    own = f"script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data:"
    own += "; connect-src 'self'" if connect else ""
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def anchored(part: Part) -> Markup:
    """A part that the contents can lead to."""
    place, _, content = part
    return element("div", content, id=place, class_="part")
