"""The report: one HTML file that needs nothing beside it."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from collections.abc import Callable, Sequence
from pathlib import Path

from icda.report import controls, sections
from icda.report.formatting import percent
from icda.report.markup import Markup, element, join
from icda.report.results import Result, metric, run_title
from icda.report.runs import Explanations, Run, collect_runs
from icda.results.files import write_atomically


def _audit(run: Run, level: int) -> Markup:
    if not run.part("audit"):
        return Markup("")
    from icda.report.sections.audit import audit  # only a page with an audit needs it

    return audit(run.part("audit"), level)


RUN_SECTIONS: dict[str, tuple[str, Callable[[Run, int], Markup]]] = {
    "what": ("What was run", sections.what_was_run),
    "headline": ("Headline numbers", sections.headline),
    "classes": ("Accuracy per class", sections.per_class),
    "groups": ("Accuracy per group", sections.per_group),
    "confusion": ("Confusion", sections.confusion),
    "margins": ("Margins", sections.margins),
    "strengths": ("Strengths", sections.strengths),
    "tied": ("Samples tied to a wrong class", sections.tied),
    "gradcam": ("Grad-CAM", sections.gradcam),
    "counterfactuals": ("Counterfactual pictures", sections.counterfactuals),
    "curves": ("Learning curve", sections.learning_curve),
    "variances": ("Mapped variances", sections.variances),
    "audit": ("Audit", _audit),
    "settings": ("Settings", sections.configuration),
    "environment": ("Environment", sections.environment),
}
COMMON_SECTIONS: dict[str, tuple[str, Callable[[Sequence[Run], int], Markup]]] = {
    "comparison": ("Comparison", sections.comparison),
    "spreads": ("Methods beside each other", sections.spreads),
    "curves": ("Learning curves", sections.learning_curves),
    "gradcam": ("Grad-CAM side by side", sections.heat_beside),
}
LINKED_RUNS = 12  # more runs than that would bury the other entries of the contents

Part = tuple[str, str, Markup]  # id, title, content


def write_report(
    path: str | Path, results: Sequence[Result], explanations: Sequence[Explanations | None] | None = None
) -> Path:
    """Write one self-contained HTML page about one run, or about several with a comparison, and return where it is.

    `explanations` stand in the order of the results: what explanations.json holds, None for a run that has none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(f"{folder}/report.html", [{"task": "waterbirds", "method": "icda"}])
    ...     "icda on waterbirds" in page.read_text(encoding="utf-8")
    True
    """
    path = Path(path)
    page = render_page(results, explanations)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Names read from a file system may hold lone surrogates, which UTF-8 cannot carry.
    write_atomically(path, page.encode("utf-8", errors="xmlcharrefreplace"))
    return path


def render_page(results: Sequence[Result], explanations: Sequence[Explanations | None] | None = None) -> str:
    """The page as text."""
    runs = collect_runs(results, explanations)
    if len(runs) == 1:
        title, parts = run_title(runs[0].result), run_parts(runs[0], level=2)
    else:
        title, parts = _several_title(results), _several(runs)
    style, script = (_resource(name) for name in ("style.css", "script.js"))
    entries = [(place, name) for place, name, _ in parts]
    if 1 < len(runs) <= LINKED_RUNS:
        entries += [(f"{run.key}run", run_title(run.result)) for run in runs]
    eyebrow = element("p", "icda report", class_="eyebrow")
    top = element("header", element("div", eyebrow, element("h1", title)), controls.theme_switch())
    aside = element("aside", controls.contents(entries), controls.filters(runs[0].vocabulary))
    main = element("main", *(_anchored(part) for part in parts), id="content", tabindex="-1")
    body = element("body", controls.skip_link(), top, element("div", aside, main, class_="layout"), script)
    page = element("html", element("head", _head(title, style, script)), body, lang="en")
    return f"<!doctype html>\n{page}\n"


def run_parts(run: Run, level: int) -> list[Part]:
    """Every part that this run has something for, under headings of the given level."""
    parts = ((name, title, part(run, level)) for name, (title, part) in RUN_SECTIONS.items())
    return [(run.key + name, title, content) for name, title, content in parts if content]


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
            element("title", f"{title} – icda report"),
            style,
        ]
    )


def _resource(name: str) -> Markup:
    text = (importlib.resources.files("icda.report") / name).read_text(encoding="utf-8")
    return element("style" if name.endswith("css") else "script", Markup(text))


def _inside(markup: Markup) -> str:
    return markup.partition(">")[2].rpartition("</")[0]


def _anchored(part: Part) -> Markup:
    place, _, content = part
    return element("div", content, id=place, class_="part")


def _several_title(results: Sequence[Result]) -> str:
    methods = {str(result["method"]) for result in results}
    tasks = {str(result["task"]) for result in results}
    method = next(iter(methods)) if len(methods) == 1 else f"{len(methods)} methods"
    task = next(iter(tasks)) if len(tasks) == 1 else f"{len(tasks)} tasks"
    return f"{method} on {task}, {len(results)} runs"


def _several(runs: Sequence[Run]) -> list[Part]:
    parts = [(name, title, part(runs, 2)) for name, (title, part) in COMMON_SECTIONS.items()]
    opened = []
    for run in runs:
        accuracy = metric(run.result, "accuracy")
        figure = "" if accuracy is None else element("span", f"accuracy {percent(accuracy)}", class_="note")
        summary = element("summary", element("h3", run_title(run.result)), figure)
        inside = (_anchored(part) for part in run_parts(run, level=4))
        opened.append(element("details", summary, *inside, class_="run", id=f"{run.key}run"))
    each = element("section", element("h2", "Each run"), *opened)
    return [part for part in [*parts, ("runs", "Each run", each)] if part[2]]
