"""A mkdocs hook: one page of the API reference per room of the package, filled by mkdocstrings from the docstrings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import icda

INTERNAL = ("cli",)  # commands: `icda --help` documents them


def rooms() -> list[str]:
    """The folders of the package that users import from."""
    package = Path(icda.__file__).parent
    names = sorted(path.parent.name for path in package.glob("*/__init__.py"))
    return [name for name in names if name not in INTERNAL]


def on_config(config: Any) -> Any:
    """Put the rooms where mkdocs.yml has the folder `api/`."""
    pages: list[Any] = ["api/index.md", *({f"icda.{name}": f"api/{name}.md"} for name in rooms())]
    config.nav = _filled(config.nav, pages)
    return config


def _filled(nav: Any, pages: list[Any]) -> Any:
    if isinstance(nav, list):
        return [_filled(entry, pages) for entry in nav]
    if isinstance(nav, dict):
        return {title: _filled(value, pages) for title, value in nav.items()}
    return pages if nav == "api/" else nav


def on_files(files: Files, config: Any) -> Files:
    for name in rooms():
        text = f"# icda.{name}\n\n::: icda.{name}\n"
        files.append(File.generated(config, f"api/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The list of rooms on the first page of the reference, each with the first line of its docstring."""
    if page.file.src_uri != "api/index.md":
        return markdown
    rows = [f"| [`icda.{name}`]({name}.md) | {_first_line(name)} |" for name in rooms()]
    return "\n".join([markdown, "", "| module | what it is |", "|:--|:--|", *rows])


def _first_line(room: str) -> str:
    source = (Path(icda.__file__).parent / room / "__init__.py").read_text()
    return source.split('"""')[1].strip().split("\n")[0] if '"""' in source else ""
