"""The report: one HTML file that needs nothing beside it."""

from collections.abc import Callable, Sequence
from pathlib import Path

from icda.report.formatting import percent
from icda.report.markup import Markup, Part, anchored, element, framed
from icda.report.results import Explanations, Result, Run, collect_runs, metric, run_title
from icda.report.sections.audit import audit
from icda.report.sections.breakdown import confusion, per_class, per_group
from icda.report.sections.comparison import compare_heatmaps, comparison, spreads
from icda.report.sections.curves import learning_curve, learning_curves
from icda.report.sections.overview import configuration, environment, headline, what_was_run
from icda.report.sections.samples import counterfactuals, gradcam, tied
from icda.report.sections.strengths import margins, strengths, variances
from icda.results.files import write_page

RUN_SECTIONS: dict[str, tuple[str, Callable[[Run, int], Markup]]] = {
    "what": ("What was run", what_was_run),
    "headline": ("Headline numbers", headline),
    "classes": ("Accuracy per class", per_class),
    "groups": ("Accuracy per group", per_group),
    "confusion": ("Confusion", confusion),
    "margins": ("Margins", margins),
    "strengths": ("Strengths", strengths),
    "tied": ("Samples tied to a wrong class", tied),
    "gradcam": ("Grad-CAM", gradcam),
    "counterfactuals": ("Counterfactual pictures", counterfactuals),
    "curves": ("Learning curve", learning_curve),
    "variances": ("Mapped variances", variances),
    "audit": ("Audit", lambda run, level: audit(run.part("audit"), level)),
    "settings": ("Settings", configuration),
    "environment": ("Environment", environment),
}
COMMON_SECTIONS: dict[str, tuple[str, Callable[[Sequence[Run], int], Markup]]] = {
    "comparison": ("Comparison", comparison),
    "spreads": ("Methods beside each other", spreads),
    "curves": ("Learning curves", learning_curves),
    "gradcam": ("Grad-CAM side by side", compare_heatmaps),
}
LINKED_RUNS = 12  # more runs than that would bury the other entries of the contents


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
    write_page(path := Path(path), render_page(results, explanations))
    return path


def render_page(results: Sequence[Result], explanations: Sequence[Explanations | None] | None = None) -> str:
    """The page as text."""
    runs = collect_runs(results, explanations)
    if len(runs) == 1:
        title, parts = run_title(runs[0].result), run_parts(runs[0], level=2)
    else:
        named = {key: {str(result[key]) for result in results} for key in ("method", "task")}
        method, task = (min(names) if len(names) == 1 else f"{len(names)} {key}s" for key, names in named.items())
        title, parts = f"{method} on {task}, {len(results)} runs", _several(runs)
    links = [(f"{run.key}run", run_title(run.result)) for run in runs] if 1 < len(runs) <= LINKED_RUNS else []
    return framed(title, "icda report", parts, runs[0].vocabulary, links)


def run_parts(run: Run, level: int) -> list[Part]:
    """Every part that this run has something for, under headings of the given level."""
    parts = ((name, title, part(run, level)) for name, (title, part) in RUN_SECTIONS.items())
    return [(run.key + name, title, content) for name, title, content in parts if content]


def _several(runs: Sequence[Run]) -> list[Part]:
    parts = [(name, title, part(runs, 2)) for name, (title, part) in COMMON_SECTIONS.items()]
    opened = []
    for run in runs:
        accuracy = metric(run.result, "accuracy")
        figure = "" if accuracy is None else element("span", f"accuracy {percent(accuracy)}", class_="note")
        summary = element("summary", element("h3", run_title(run.result)), figure)
        inside = (anchored(part) for part in run_parts(run, level=4))
        opened.append(element("details", summary, *inside, class_="run", id=f"{run.key}run"))
    each = element("section", element("h2", "Each run"), *opened)
    return [part for part in [*parts, ("runs", "Each run", each)] if part[2]]
