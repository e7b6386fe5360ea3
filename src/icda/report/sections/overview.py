"""What was run, on what, and how well it went."""

from __future__ import annotations

from icda.report.formatting import FIGURES, duration, figure, metric_text, percent
from icda.report.markup import Markup, definitions, element, section
from icda.report.results import Result, as_number, class_name, listing, mapping, metric

LARGE_FIGURES = 4


def what_was_run(result: Result, level: int) -> Markup:
    """The run's identity: enough to know what it may be compared with."""
    facts = [
        ("Task", result["task"]),
        ("Method", result["method"]),
        ("Model", mapping(result, "config").get("model")),
        ("Seed", result.get("seed")),
        ("Checkpoint kept by", result.get("selection")),
        ("Evaluated on", f"{result.get('split', 'test')} split"),
        ("Training data", _training_data(result)),
        ("Time", duration(as_number(result.get("seconds")))),
        ("Data hash", element("code", result["data_hash"]) if result.get("data_hash") else None),
    ]
    return section("What was run", level, definitions([(k, v) for k, v in facts if v not in (None, "")], "facts"))


def headline(result: Result, level: int) -> Markup:
    """One sentence and every metric that is a single number; empty when there is none."""
    names = dict.fromkeys((*FIGURES, *mapping(result, "metrics")))
    figures = [(name, value) for name in names if (value := metric(result, name)) is not None]
    if not figures:
        return Markup("")
    cards = [(figure(name).label, _value_and_meaning(name, value)) for name, value in figures]
    return section(
        "Headline numbers",
        level,
        element("p", _sentence(result), class_="lede") if _sentence(result) else "",
        definitions(cards[:LARGE_FIGURES], "figures large"),
        definitions(cards[LARGE_FIGURES:], "figures") if cards[LARGE_FIGURES:] else "",
    )


def _value_and_meaning(name: str, value: float) -> Markup:
    meaning = figure(name).meaning
    note = element("small", meaning) if meaning else ""
    return Markup(element("span", metric_text(name, value), class_="value") + note)


def _training_data(result: Result) -> str:
    counts = [count for value in listing(result, "class_counts") if (count := as_number(value)) is not None]
    if not counts:
        return ""
    text = f"{sum(counts):,.0f} samples, {len(counts)} classes"
    if min(counts) > 0 and max(counts) > min(counts):
        text += f", the largest {max(counts) / min(counts):.3g} times the smallest"
    return text


def _sentence(result: Result) -> str:
    accuracy, metrics = metric(result, "accuracy"), mapping(result, "metrics")
    if accuracy is None:
        return ""
    classes = [(class_name(result, i), value) for i, value in enumerate(listing(metrics, "per_class_accuracy"))]
    groups = mapping(metrics, "per_group_accuracy").items()
    parts = [f"{percent(accuracy)} of the {result.get('split', 'test')} samples are classified correctly"]
    for what, accuracies in (("class", classes), ("group", groups)):
        known = [(value, str(name)) for name, given in accuracies if (value := as_number(given)) is not None]
        if known:
            value, name = min(known)
            parts.append(f"{percent(value)} in the worst {what} ({name})")
    return f"{', '.join(parts[:-1])} and {parts[-1]}." if len(parts) > 1 else f"{parts[0]}."
