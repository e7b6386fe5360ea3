"""The audit on a terminal."""

import io

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from icda.auditing.result import Audit
from icda.report.sections.verdicts import command_of
from icda.terminal import make_console

CLASSES_SHOWN = 20
WHOLE_NAME = 12  # characters of a class name that are not broken in a narrow terminal


def overview(audit: Audit, top: int = 10) -> RenderableType:
    """The recommendation, what ties cost each class, and the first rows of both rankings."""
    settings = audit.settings
    heading = f"{settings['samples']} samples, {settings['features']} features, {len(audit.class_names)} classes"
    parts: list[RenderableType] = [Text(f"{heading}: audited in {audit.seconds:.1f} s", style="bold")]
    parts += [Text(note) for note in audit.notes]
    parts += [Text(""), Text(audit.summary, style="bold")]
    parts += [Text(""), _verdicts(audit), Text(f"treatment: {audit.treatment}")]
    for finding in audit.findings:
        parts.append(Text(f"{finding.name.replace('_', ' ')}: {finding.advice}"))
        parts += [Padding(Text(f"- {reason}"), (0, 0, 0, 2)) for reason in finding.reasons]
    parts += [Text(""), Text(f"next: {command_of(audit.as_dict(0))}", style="bold"), Text(""), _costs(audit)]
    if top:
        parts += [Text(""), _samples(audit, top), Text(""), _labels(audit, top)]
    return Group(*parts)


def as_text(audit: Audit) -> str:
    """The overview as plain text."""
    file = io.StringIO()
    make_console(file=file, width=100, color_system=None).print(overview(audit))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _verdicts(audit: Audit) -> Table:
    table = _table("verdicts", ("kind", "answer", "confidence"))
    for kind, verdict in audit.verdicts.items():
        table.add_row(*map(Text, (kind.replace("_", " "), verdict.answer, f"{verdict.confidence:.2f}")))
    return table


def _costs(audit: Audit) -> Table:
    shown = sorted(audit.costs, key=lambda cost: -cost.gap)[:CLASSES_SHOWN]
    rest = f" ({CLASSES_SHOWN} widest gaps of {len(audit.costs)} classes)" if len(audit.costs) > len(shown) else ""
    titles = ("class", "n", "suspected", "tied to", "strength", "right, suspected", "right, rest")
    table = _table(f"what ties cost{rest}", titles)
    for column, names in ((0, [cost.name for cost in shown]), (3, [cost.tied_to or "" for cost in shown])):
        table.columns[column].min_width = min(WHOLE_NAME, max(map(len, names), default=0))
    for cost in shown:
        figures = (cost.mean_strength, cost.accuracy_suspected, cost.accuracy_rest)
        words = (cost.name, str(cost.samples), str(cost.suspected), cost.tied_to or "")
        table.add_row(*map(Text, words), *(Text("" if value is None else f"{value:.3f}") for value in figures))
    return table


def _samples(audit: Audit, top: int) -> Table:
    table = _table("most tied samples", ("sample", "label", "tied to", "strength", "tie", "predicted"))
    for row in (row for row in audit.most_tied(top) if row["tie"] > 0):
        figures = (f"{row['strength']:.3f}", f"{row['tie']:.2f}")
        table.add_row(*map(Text, (row["name"], row["label"], row["tied_to"], *figures, row["predicted"])))
    return table


def _labels(audit: Audit, top: int) -> Table:
    noise = audit.noise
    title = f"most doubtful labels ({noise.num_issues} marked by {noise.found_by}, estimated {noise.rate:.1%} wrong)"
    table = _table(title, ("sample", "label", "looks like", "quality", "marked"))
    for row in audit.most_doubtful(top):
        marked = "yes" if row["label_issue"] else ""
        words = (row["name"], row["label"], row["tied_to"], f"{row['label_quality']:.4f}", marked)
        table.add_row(*map(Text, words))
    return table


def _table(title: str, titles: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in titles:
        words = name in ("class", "tied to", "sample", "label", "predicted", "looks like", "marked", "kind", "answer")
        table.add_column(name, justify="left" if words else "right", overflow="fold")
    return table
