"""What was run, on what, and how well it went."""

from __future__ import annotations

from icda.report.formatting import FIGURES, duration, figure, metric_text, percent
from icda.report.markup import Markup, definitions, element, join, section
from icda.report.results import Result, as_number, class_name, listing, mapping, metric
from icda.report.runs import Run, evaluated_samples
from icda.report.sections.uncertainty import Uncertainty, uncertainty

LARGE_FIGURES = 4


def what_was_run(run: Run, level: int) -> Markup:
    """The run's identity: enough to know what it may be compared with."""
    result = run.result
    facts = [
        ("Task", result["task"]),
        ("Method", result["method"]),
        ("Model", result.get("model") or mapping(result, "config").get("model")),
        ("Seed", result.get("seed")),
        ("Checkpoint kept by", result.get("selection")),
        ("Evaluated on", _evaluated_on(result)),
        ("Training data", _training_data(result)),
        ("Time", duration(as_number(result.get("seconds")))),
        ("Data hash", element("code", str(result["data_hash"])[:12]) if result.get("data_hash") else None),
    ]
    return section("What was run", level, definitions([(k, v) for k, v in facts if v not in (None, "")], "facts"))


def headline(run: Run, level: int) -> Markup:
    """One sentence and every metric that is a single number, with its interval; empty when there is none."""
    result = run.result
    names = dict.fromkeys((*FIGURES, *mapping(result, "metrics")))
    figures = [(name, value) for name in names if (value := metric(result, name)) is not None]
    if not figures:
        return Markup("")
    known = {name: interval for name, _ in figures if (interval := uncertainty(result, name)) is not None}
    cards = [(figure(name).label, _card(name, value, known.get(name))) for name, value in figures]
    return section(
        "Headline numbers",
        level,
        element("p", _sentence(result), class_="lede") if _sentence(result) else "",
        definitions(cards[:LARGE_FIGURES], "figures large"),
        definitions(cards[LARGE_FIGURES:], "figures") if cards[LARGE_FIGURES:] else "",
        element("p", _intervals_note(known), class_="note") if known else "",
    )


def _card(name: str, value: float, interval: Uncertainty | None) -> Markup:
    shown = "" if interval is None else element("span", interval.text(), class_="interval")
    note = element("small", figure(name).meaning) if figure(name).meaning else ""
    return join([element("span", metric_text(name, value), class_="value"), shown, note])


def _intervals_note(known: dict[str, Uncertainty]) -> str:
    rules = ", ".join(dict.fromkeys(interval.rule for interval in known.values()))
    return (
        f"Ranges are 95 % intervals from the number of test samples ({rules}). They do not hold what another seed would "
        "change: run several seeds for that. The worst of many classes or groups is also low by chance."
    )


def _evaluated_on(result: Result) -> str:
    samples = sum(evaluated_samples(result))
    return f"{result.get('split', 'test')} split" + (f", {samples:,} samples" if samples else "")


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
        known = [(value, str(name)) for name, reported in accuracies if (value := as_number(reported)) is not None]
        if known:
            value, name = min(known)
            parts.append(f"{percent(value)} in the worst {what} ({name})")
    return f"{', '.join(parts[:-1])} and {parts[-1]}." if len(parts) > 1 else f"{parts[0]}."
