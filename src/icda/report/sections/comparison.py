"""Several runs beside each other."""

from collections.abc import Mapping, Sequence
from typing import Any

from icda.report.charts import Whisker, whiskers
from icda.report.formatting import figure, heading, percent
from icda.report.markup import NOTHING, Markup, captioned, element, join, note, section, table, void
from icda.report.results import Result, Run, as_number, entries
from icda.report.sections.overview import figure_cards
from icda.report.sections.samples import picture, verdict
from icda.report.tables import compared, comparison_table, summarise

PICTURED = 24  # samples shown side by side
METRICS_DRAWN = 2


def comparison(runs: Sequence[Run], level: int) -> Markup:
    """Tasks and methods down, metrics across, mean ± standard deviation over runs; empty for a single run.

    What all runs have in common, the task or the selection rule, is said once above the table.
    """
    results = [run.result for run in runs]
    if len(results) < 2:
        return NOTHING
    tasks, rules = ({str(result.get(key) or "") for result in results} for key in ("task", "selection"))
    caption = "Mean ± standard deviation over n runs (n − 1 in the denominator)"
    caption += f"; task: {min(tasks)}" if len(tasks) == 1 else ""
    caption += f"; checkpoint kept by: {min(rules)}" if len(rules) == 1 and min(rules) else ""
    drawn = comparison_table(results)
    first = 1 if len(tasks) == 1 else 0
    names = drawn.names - first
    rows = [row[first:] for row in drawn.rows]
    body = element("div", table(caption, drawn.header[first:], rows, names), class_="comparison")
    words = note("One run has no deviation. An empty cell was not measured.")
    chooser = _chooser(drawn.header[first:], names + 1) if len(rows) > 1 else ""
    return section("Comparison", level, _cards(results), chooser, body, words)


def spreads(runs: Sequence[Run], level: int) -> Markup:
    """A picture of the comparison: each method's mean and deviation, a panel for each task and metric."""
    results = [run.result for run in runs]
    blocks = []
    for task in dict.fromkeys(str(result["task"]) for result in results):
        own = [result for result in results if str(result["task"]) == task]
        # Accuracy and the worst group, or the worst class where there are no groups.
        order = ("accuracy", "worst_group_accuracy", "worst_class_accuracy")
        measured = [name for name in order if any(row.n for row in summarise(own, name))]
        panels = [drawn for name in measured[:METRICS_DRAWN] if (drawn := _panel(own, name, task))]
        if panels:
            title = element(f"h{level + 1}", task)
            blocks.append(element("div", title, element("div", *panels, class_="panels"), class_="block"))
    words = note("Dots are means; lines reach one standard deviation to each side.")
    return section("Methods beside each other", level, *blocks, words) if blocks else NOTHING


def compare_heatmaps(runs: Sequence[Run], level: int) -> Markup:
    """Grad-CAM of several runs on the same samples, a row per sample; empty unless two runs share one."""
    blocks = []
    tasks = dict.fromkeys(str(run.result["task"]) for run in runs)
    for task in tasks:
        seen = [(run, heats) for run in runs if str(run.result["task"]) == task and (heats := _heats(run))]
        shared = [number for number in (seen[0][1] if seen else {}) if sum(number in heats for _, heats in seen) > 1]
        if shared:
            title = element(f"h{level + 1}", task) if len(tasks) > 1 else ""
            rows = [_heat_row(number, seen) for number in shared[:PICTURED]]
            blocks.append(element("div", title, element("div", *rows, class_="rows"), class_="block"))
    words = "The same samples seen by each run; beside the prediction the share of the heat in the centre box."
    return section("Grad-CAM side by side", level, element("p", words), *blocks) if blocks else NOTHING


def _cards(results: Sequence[Result]) -> Markup:
    """Headline cards where all runs are seeds of one thing; what is compared does not fit on cards."""
    if len(summarise(results, "accuracy")) > 1:
        return NOTHING
    cards = []
    for row in (row for name in compared(results) for row in summarise(results, name) if row.n):
        value = element("span", f"{row}{' %' if figure(row.metric).percent else ''}", class_="value spread")
        cards.append((figure(row.metric).label, join([value, element("small", figure(row.metric).meaning)])))
    words = element("p", f"Mean ± standard deviation over {len(results)} runs.", class_="lede")
    return join([words, figure_cards(cards)])


def _chooser(header: Sequence[str], first: int) -> Markup:
    """Boxes to choose which figures the table shows; the script unhides them."""
    boxes = []
    for position, name in enumerate(header[first:], start=first):
        tick = void("input", type="checkbox", checked="", data_column=position)
        boxes.append(element("label", tick, element("span", name)))
    inner = element("fieldset", element("legend", "Figures shown"), *boxes)
    return element("div", inner, class_="chooser", hidden="") if len(boxes) > 1 else NOTHING


def _panel(results: Sequence[Result], name: str, task: str) -> Markup:
    rows = [row for row in summarise(results, name) if row.mean is not None]
    if len(rows) < 2:
        return NOTHING
    several_rules = len({row.selection for row in rows}) > 1
    labels = [f"{row.method}, {row.selection}" if several_rules else row.method for row in rows]
    drawn = [Whisker(label, row.mean or 0.0, row.std, row.n) for label, row in zip(labels, rows, strict=True)]
    title = figure(name).label
    return captioned(title, whiskers(f"{title}, {task}", drawn, figure(name).percent, heading(name)))


def _heats(run: Run) -> dict[int, Mapping[str, Any]]:
    samples = entries(run.part("gradcam"), "samples")
    return {int(number): entry for entry in samples if (number := as_number(entry.get("index"))) is not None}


def _heat_row(number: int, seen: Sequence[tuple[Run, Mapping[int, Mapping[str, Any]]]]) -> Markup:
    having = [(run, heats[number]) for run, heats in seen if number in heats]
    run, entry = having[0]
    target = run.class_name(entry.get("target"))
    cells = [_heat_cell(picture(entry.get("picture"), f"sample {number}, {target}"), f"sample {number}", target)]
    for other, its in having:
        prediction = other.class_name(its.get("prediction"))
        seed = other.result.get("seed")
        name = f"{other.result['method']}" + ("" if seed is None else f", seed {seed}")
        image = picture(its.get("heat"), f"sample {number} with the heat of Grad-CAM of {name} for {prediction}")
        words = join([verdict(its, prediction), " ", percent(as_number(its.get("centre_share")))])
        cells.append(_heat_cell(image, name, words))
    filters = run.filters(entry.get("target"), group=entry.get("group"))
    return element("div", *cells, class_="heat-row", **filters)


def _heat_cell(image: Markup, title: str, words: object) -> Markup:
    return element("figure", image, element("figcaption", element("strong", title), element("small", words)))
