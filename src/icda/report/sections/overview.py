"""What was run, on what, how well it went, and what is needed to run it again."""

from collections.abc import Iterator, Mapping
from typing import Any

from icda.metrics.registry import OWN_METRICS
from icda.report.formatting import duration, figure, metric_text, percent, uncertainty
from icda.report.markup import NOTHING, Markup, definitions, element, join, note, section, table
from icda.report.results import Result, Run, as_number, class_name, evaluated_samples, listing, mapping, metric, numbers

LARGE_FIGURES = 4


def what_was_run(run: Run, level: int) -> Markup:
    """The run's identity: enough to know what it may be compared with."""
    result = run.result
    samples = sum(evaluated_samples(result))
    facts = [
        ("Task", result["task"]),
        ("Method", result["method"]),
        ("Model", result.get("model") or mapping(result, "config").get("model")),
        ("Seed", result.get("seed")),
        ("Checkpoint kept by", result.get("selection")),
        ("Evaluated on", f"{result.get('split', 'test')} split" + (f", {samples:,} samples" if samples else "")),
        ("What the method found", result.get("found")),
        ("Training data", _training_data(result)),
        ("Time", duration(as_number(result.get("seconds")))),
        ("Data hash", element("code", str(result["data_hash"])[:12]) if result.get("data_hash") else None),
    ]
    return section("What was run", level, definitions([(k, v) for k, v in facts if v not in (None, "")], "facts"))


def headline(run: Run, level: int) -> Markup:
    """One sentence and every metric that is a single number, with its interval; empty when there is none."""
    result = run.result
    names = dict.fromkeys((*OWN_METRICS, *mapping(result, "metrics")))
    figures = {name: value for name in names if (value := metric(result, name)) is not None}
    known = {name: interval for name in figures if (interval := uncertainty(result, name)) is not None}
    cards = []
    for name, value in figures.items():
        spread = element("span", str(known[name]), class_="interval") if name in known else ""
        meaning = element("small", figure(name).meaning) if figure(name).meaning else ""
        shown = element("span", metric_text(name, value), class_="value")
        cards.append((figure(name).label, join([shown, spread, meaning])))
    rules = ", ".join(dict.fromkeys(interval.rule for interval in known.values()))
    words = (
        f"Ranges are 95 % intervals from the number of test samples ({rules}). They do not hold what another seed would "
        "change: run several seeds for that. The worst of many classes or groups is also low by chance."
    )
    sentence = _sentence(result)
    lede = element("p", sentence, class_="lede") if sentence else ""
    parts = [lede, figure_cards(cards), note(words if known else "")]
    return section("Headline numbers", level, *parts) if cards else NOTHING


def figure_cards(cards: list[tuple[str, Markup]]) -> Markup:
    """Figures under their names, the first few large."""
    small = definitions(cards[LARGE_FIGURES:], "figures") if cards[LARGE_FIGURES:] else ""
    return join([definitions(cards[:LARGE_FIGURES], "figures large"), small])


def configuration(run: Run, level: int) -> Markup:
    """Every setting of the run; empty when none was kept."""
    return _settings("Settings", "Settings of this run", mapping(run.result, "config"), level)


def environment(run: Run, level: int) -> Markup:
    """Versions and machine; empty when none was kept."""
    return _settings("Environment", "Software and machine of this run", mapping(run.result, "environment"), level)


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted names with their values as text."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _settings(title: str, caption: str, settings: Mapping[str, Any], level: int) -> Markup:
    # A setting that was not set says nothing: the reader looks for those that were.
    rows = [(element("code", name), value) for name, value in flatten(settings) if value not in ("None", "{}", "")]
    drawn = element("div", table(caption, ["Name", "Value"], rows, names=2), class_="settings")
    return section(title, level, drawn) if rows else NOTHING


def _training_data(result: Result) -> str:
    counts = [count for count in numbers(result, "class_counts") if count is not None]
    if not counts:
        return ""
    differ = min(counts) > 0 and max(counts) > min(counts)
    ratio = f", the largest {max(counts) / min(counts):.3g} times the smallest" if differ else ""
    return f"{sum(counts):,.0f} samples, {len(counts)} classes{ratio}"


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
