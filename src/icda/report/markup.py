"""HTML that cannot forget to escape: every child and attribute is text unless it is already `Markup`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup, escape

__all__ = [
    "NOTHING",
    "Markup",
    "captioned",
    "definitions",
    "element",
    "escape",
    "join",
    "note",
    "section",
    "table",
    "void",
]

NOTHING = Markup("")


def join(parts: Iterable[object]) -> Markup:
    """Parts one after the other, escaped where they are text."""
    return NOTHING.join(map(escape, parts))


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """An HTML element around its children.

    A trailing underscore in an attribute's name is dropped and others become hyphens; an attribute of None is left out.

    >>> print(element("p", "a < b", class_="note", aria_hidden="true"))
    <p class="note" aria-hidden="true">a &lt; b</p>
    """
    return Markup(f"<{tag}{_opening(attributes)}>{join(children)}</{tag}>")


def void(tag: str, **attributes: object) -> Markup:
    """An HTML element that has no children and no end tag.

    >>> print(void("img", src="data:,", alt="a cat"))
    <img src="data:," alt="a cat">
    """
    return Markup(f"<{tag}{_opening(attributes)}>")


def section(title: str, level: int, *children: object) -> Markup:
    """A section under a heading of the given level."""
    return element("section", element(f"h{level}", title), *children)


def captioned(caption: str, *children: object) -> Markup:
    """A figure under its caption."""
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

    >>> "<td>1</td>" in table("Ages", ["Name", "Age"], [["Ann", 1]])
    True
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
    """Terms and what they are, as a description list."""
    return element("dl", *(element("div", element("dt", k), element("dd", v)) for k, v in pairs), class_=css)


def _opening(attributes: Mapping[str, object]) -> str:
    named = ((name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items() if value is not None)
    return "".join(f' {name}="{escape(value)}"' for name, value in named)
