"""What a reader steers by: contents, filters, the switch between light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from icda.report.markup import Markup, element, escape, join
from icda.report.runs import Vocabulary


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
        return Markup("")
    clear = element("button", "Clear", type="button", id="clear", class_="button", disabled="")
    status = element("p", id="filtered", class_="note", role="status")
    inner = join([element("p", "Filter", class_="small-title"), *choosers, clear, status])
    return element("div", inner, id="filters", role="search", aria_label="Filter all sections", hidden="")


def _chooser(kind: str, title: str, names: Mapping[str, str]) -> Markup:
    options = [element("option", f"All {title.lower()}{'es' if title.endswith('s') else 's'}", value="")]
    options += [element("option", escape(name), value=token) for name, token in names.items()]
    place = f"filter-{kind}"
    return element("label", element("span", title), element("select", *options, id=place, data_kind=kind), for_=place)
