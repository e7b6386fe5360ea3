"""HTML that cannot forget to escape: every child and attribute is text unless it is already `Markup`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


class Markup(str):
    """HTML made by this package; everything else is text and gets escaped."""


def escape(value: object) -> Markup:
    """Text as HTML; `Markup` stays as it is.

    >>> escape("<script>")
    '&lt;script&gt;'
    """
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def join(parts: Iterable[object]) -> Markup:
    """Parts one after the other, escaped where they are text."""
    return Markup("".join(map(escape, parts)))


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """An HTML element around its children.

    A trailing underscore in an attribute's name is dropped and others become hyphens; an attribute of None is left out.

    >>> element("p", "a < b", class_="note", aria_hidden="true")
    '<p class="note" aria-hidden="true">a &lt; b</p>'
    """
    named = ((name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items() if value is not None)
    opening = "".join(f' {name}="{escape(value)}"' for name, value in named)
    return Markup(f"<{tag}{opening}>{join(children)}</{tag}>")


def section(title: str, level: int, *children: object) -> Markup:
    """A section under a heading of the given level."""
    return element("section", element(f"h{level}", title), *children)


def table(caption: str, header: Sequence[object], rows: Iterable[Sequence[object]], names: int = 1) -> Markup:
    """A table that scrolls sideways when it is wider than the screen.

    The first `names` columns are words; the first is each row's heading. The others are figures, set to the right.

    >>> "<td>1</td>" in table("Ages", ["Name", "Age"], [["Ann", 1]])
    True
    """

    def css(position: int) -> str | None:
        return "name" if position < names else None

    head = join(element("th", cell, scope="col", class_=css(i)) for i, cell in enumerate(header))
    body = []
    for first, *others in rows:
        cells = (element("td", cell, class_=css(i)) for i, cell in enumerate(others, start=1))
        body.append(element("tr", element("th", first, scope="row", class_="name"), *cells))
    inner = (
        element("caption", element("span", caption)),
        element("thead", element("tr", head)),
        element("tbody", *body),
    )
    return element("div", element("table", *inner), class_="scroll", role="region", aria_label=caption, tabindex="0")


def definitions(pairs: Iterable[tuple[object, object]], css: str) -> Markup:
    """Terms and what they are, as a description list."""
    return element("dl", *(element("div", element("dt", k), element("dd", v)) for k, v in pairs), class_=css)
