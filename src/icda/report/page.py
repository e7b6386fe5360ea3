"""The report: one HTML file that needs nothing beside it."""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from pathlib import Path

from icda.report import sections
from icda.report.markup import Markup, element, join
from icda.report.results import Result, check_results, run_title

RUN_SECTIONS = (
    sections.what_was_run,
    sections.headline,
    sections.per_class,
    sections.per_group,
    sections.learning_curve,
    sections.confusion,
    sections.configuration,
    sections.environment,
)

# No script, no request: even if some text slipped through unescaped, a browser would not act on it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def write_report(path: str | Path, results: Sequence[Result]) -> Path:
    """Write one self-contained HTML page about one run, or about several with a comparison, and return where it is.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(f"{folder}/report.html", [{"task": "waterbirds", "method": "icda"}])
    ...     "icda on waterbirds" in page.read_text(encoding="utf-8")
    True
    """
    path = Path(path)
    page = render_page(results)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Names read from a file system may hold lone surrogates, which UTF-8 cannot carry.
    path.write_text(page, encoding="utf-8", errors="xmlcharrefreplace")
    return path


def render_page(results: Sequence[Result]) -> str:
    """The page as text."""
    check_results(results)
    if len(results) == 1:
        title, body = run_title(results[0]), render_run(results[0], level=2)
    else:
        title, body = _several_title(results), _several(results)
    style = Markup((importlib.resources.files("icda.report") / "style.css").read_text(encoding="utf-8"))
    head = join(
        [
            Markup('<meta charset="utf-8">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup('<meta name="color-scheme" content="light dark">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
            element("title", f"{title} – icda report"),
            element("style", style),
        ]
    )
    top = element("header", element("p", "icda report", class_="eyebrow"), element("h1", title))
    page = element("html", element("head", head), element("body", top, element("main", body)), lang="en")
    return f"<!doctype html>\n{page}\n"


def render_run(result: Result, level: int) -> Markup:
    """Every section that this result has something for, under headings of the given level."""
    return join(part(result, level) for part in RUN_SECTIONS)


def _several_title(results: Sequence[Result]) -> str:
    methods = {str(result["method"]) for result in results}
    tasks = {str(result["task"]) for result in results}
    method = next(iter(methods)) if len(methods) == 1 else f"{len(methods)} methods"
    task = next(iter(tasks)) if len(tasks) == 1 else f"{len(tasks)} tasks"
    return f"{method} on {task}, {len(results)} runs"


def _several(results: Sequence[Result]) -> Markup:
    runs = []
    for result in results:
        summary = element("summary", element("h3", run_title(result)))
        runs.append(element("details", summary, render_run(result, level=4), class_="run"))
    return join([sections.comparison(results, 2), element("section", element("h2", "Each run"), *runs)])
