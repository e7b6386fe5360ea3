"""A mkdocs hook: the navigation and the table of all methods are made from the pages in docs/methods.

A page says in its front matter what the table shows: `title`, `family`, `cost`, and where they apply `needs` and `note`
(`cost` and `needs` are mappings where a page has several methods). Everything else comes from the registry, and what a
method does from the first line of its docstring, as in `icda list methods`. A new method therefore needs its page and
nothing else: no line here, in mkdocs.yml or in docs/methods/index.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from icda.methods import METHODS, method_needs, resolve_method
from icda.methods.create import method_class

MARKER = "<!-- table of methods -->"
FAMILIES = (
    "Decides for itself",
    "The paper's",
    "Baseline",
    "Implicit augmentation",
    "Long tails",
    "Subpopulation shift",
    "Wrong labels",
)
LAST_FAMILIES = ("Standard data", "Other")
NEEDS = {"groups": "group labels", "metadata": "metadata", "validation groups": "validation data with its groups"}
_FRONT_MATTER = re.compile(r"\A---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class MethodPage:
    """What one page of docs/methods says about its methods."""

    path: Path
    title: str
    family: str
    methods: tuple[str, ...]
    meta: dict[str, Any] = field(default_factory=dict)

    def said(self, key: str, method: str) -> str:
        """`cost`, `needs` or `note` of a method: one text for the page, or one per method."""
        value = self.meta.get(key, "")
        return str(value.get(method, "") if isinstance(value, dict) else value)


def read_page(path: Path) -> MethodPage:
    text = path.read_text()
    front = _FRONT_MATTER.match(text)
    meta = yaml.safe_load(front[1]) if front else {}
    body = text[front.end() :] if front else text
    heading, names = body.strip().split("\n", 1)
    line = names.strip().split("\n", 1)[0]
    methods = tuple(resolve_method(name) for name in re.findall(r"`--method (\w+)`", line))
    title = str(meta.get("title", heading.removeprefix("# ")))
    return MethodPage(path, title, str(meta.get("family", "Other")), methods, meta)


def families(docs: Path) -> dict[str, list[MethodPage]]:
    """The pages of each family in the order of their titles; families nobody has placed come before the last ones."""
    pages = [read_page(path) for path in sorted((docs / "methods").glob("*.md")) if path.name != "index.md"]
    used = {page.family for page in pages}
    order = [*FAMILIES, *sorted(used.difference(FAMILIES, LAST_FAMILIES)), *LAST_FAMILIES]
    return {
        family: sorted((page for page in pages if page.family == family), key=lambda page: page.title.lower())
        for family in order
        if family in used
    }


def navigation(docs: Path) -> list[Any]:
    """The entry "Methods" of the nav."""
    parts: list[Any] = ["methods/index.md"]
    for family, pages in families(docs).items():
        parts.append({family: [{page.title: f"methods/{page.path.name}"} for page in pages]})
    return parts


def table_of_methods(docs: Path) -> str:
    parts = []
    for family, pages in families(docs).items():
        rows = [_row(page, method) for page in pages for method in page.methods]
        header = "| name | what it does | kind | needs | cost |\n|:--|:--|:--|:--|:--|"
        parts.append("\n".join([f"## {family}", "", header, *rows]))
    return "\n\n".join(parts)


def api_reference(method: str) -> str:
    """A link to the class of a method in the API reference; mkdocs-autorefs finds the page."""
    cls = method_class(method)
    return f"[`{cls.__name__}`][{cls.__module__}.{cls.__qualname__}]"


def summary(method: str) -> str:
    """The first line of the docstring of a method's class, as a cell of a table."""
    line = (method_class(method).__doc__ or "").strip().split("\n")[0].rstrip(".")
    return line.replace("|", "\\|")


def _row(page: MethodPage, method: str) -> str:
    note = page.said("note", method)
    name = f"`{method}`" + (f" ({note})" if note else "")
    kind = "procedure" if method in METHODS else "loss"
    known = [NEEDS[need] for need in sorted(method_needs(method)) if need in NEEDS]
    needs = ", ".join([*known, *filter(None, [page.said("needs", method)])])
    what = f"[{page.title}]({page.path.name}): {summary(method)}"
    return f"| {name} | {what} | {kind} | {needs} | {page.said('cost', method)} |"


def on_config(config: Any) -> Any:
    """Put the pages of methods where mkdocs.yml has the folder `methods/`."""
    config.nav = filled(config.nav, "methods/", navigation(Path(config.docs_dir)))
    return config


def filled(nav: Any, folder: str, pages: list[Any]) -> Any:
    """The navigation with `pages` wherever it names `folder`."""
    if isinstance(nav, list):
        return [filled(entry, folder, pages) for entry in nav]
    if isinstance(nav, dict):
        return {title: filled(value, folder, pages) for title, value in nav.items()}
    return pages if nav == folder else nav


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The table on the index; on the page of a method, under its names, where its class is documented."""
    if page.file.src_uri == "methods/index.md":
        return markdown.replace(MARKER, table_of_methods(Path(config.docs_dir)))
    if not page.file.src_uri.startswith("methods/"):
        return markdown
    links = " · ".join(map(api_reference, read_page(Path(page.file.abs_src_path)).methods))
    heading, names, rest = re.split(r"\n\n", markdown.strip(), maxsplit=2)
    return f"{heading}\n\n{names} · API: {links}\n\n{rest}"
