"""The audit as a page of its own, with the samples a reader should look at, their pictures or texts."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icda.data.images import UnreadableImageError, open_rgb
from icda.errors import InputError
from icda.report.markup import Markup, Part, element, framed, section
from icda.report.results import mapping
from icda.report.sections.audit import anchored_parts, vocabulary_of
from icda.report.sections.verdicts import glossary, verdict_parts

if TYPE_CHECKING:
    from icda.auditing.result import Audit

PAIRS, SUSPECTS, TYPICAL, LABELS = 4, 8, 4, 12
SIDE = 160  # pixels of a thumbnail, at most
LONGEST = 3000  # characters of a text that are shown
Show = Callable[[int], Mapping[str, str]]  # a sample's {"picture": data URI} or {"text": ...}; empty if neither


def render_audit_page(audited: Mapping[str, Any]) -> str:
    """One self-contained page about what `icda.audit(...).as_dict()` gives.

    >>> "<h1>Audit of 3 samples" in render_audit_page({"settings": {"samples": 3}, "summary": "Nothing found."})
    True
    """
    title = f"Audit of {mapping(audited, 'settings').get('samples', 'some')} samples"
    names = audited.get("class_names") or []
    title += f", {len(names)} classes" if names else ""
    parts: list[Part] = [
        *anchored_parts(audited, 2),
        ("words", "Words on this page", glossary(audited, 2)),
        *settings_part(audited),
    ]
    return framed(title, "icda audit", parts, vocabulary_of(audited))


def settings_part(audited: Mapping[str, Any]) -> list[Part]:
    """How the audit was made; empty where it does not say."""
    settings = mapping(audited, "settings")
    if not settings:
        return []
    shown = ((name, f"{value:.4g}" if isinstance(value, float) else value) for name, value in settings.items())
    listed = ", ".join(f"{name} {value}" for name, value in shown if not isinstance(value, list | tuple))
    return [("settings", "Settings", section("Settings", 2, element("p", f"{listed}.", class_="note")))]


def render_assessment_page(assessed: Mapping[str, Any]) -> str:
    """One self-contained page about what `RobustClassifier` found and did: verdicts and treatment."""
    names = assessed.get("class_names") or []
    title = f"What was found in the data and done about it, {len(names)} classes"
    found = verdict_parts(assessed, 2)
    parts: list[Part] = [("verdicts", "Verdicts and treatment", found)] if found else []
    words: Markup = glossary(assessed, 2)
    return framed(title, "icda RobustClassifier", [*parts, ("words", "Words on this page", words)], vocabulary_of({}))


def collect_exhibits(audit: Audit, show: Show) -> dict[str, Any]:
    """Pairs of classes with their suspects beside typical samples of both, and the most doubtful labels."""

    def shown(rows: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
        order = np.asarray(rows, dtype=np.int64)
        return [{**row, **show(int(i))} for i, row in zip(order, audit.rows(order), strict=True)]

    doubtful = audit.doubtful.row[audit.doubtful.issue][:LABELS]
    pairs = []
    for label, tied_to, rows in suspect_pairs(audit)[:PAIRS]:
        pairs.append(
            {
                "label": audit.class_names[label],
                "tied_to": audit.class_names[tied_to],
                "count": len(rows),
                "suspects": shown(rows[:SUSPECTS]),
                "own": shown(typical_rows(audit, label)),
                "other": shown(typical_rows(audit, tied_to)),
            }
        )
    return {"pairs": pairs, "labels": shown(doubtful)}


def suspect_pairs(audit: Audit) -> list[tuple[int, int, np.ndarray]]:
    """(class, class it is tied to, its suspects, most tied first), the pair with most suspects first."""
    tied = audit.tied.chosen(audit.tied.suspected)
    pairs: dict[tuple[int, int], list[int]] = {}
    for label, tied_to, row in zip(tied.label, tied.tied_to, tied.row, strict=True):
        pairs.setdefault((int(label), int(tied_to)), []).append(int(row))
    ordered = sorted(pairs.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return [(label, tied_to, np.array(rows)) for (label, tied_to), rows in ordered]


def typical_rows(audit: Audit, label: int) -> np.ndarray:
    """Samples of a class that are not suspected and predicted right, nearest to their median quality."""
    figures = audit.in_memory()[0]
    typical = figures.chosen((figures.label == label) & ~figures.suspected & (figures.predicted == label))
    distance = np.abs(typical.quality - np.median(typical.quality)) if len(typical.row) else typical.quality
    return typical.row[np.argsort(distance, kind="stable")[:TYPICAL]]


def show_images(paths: Sequence[object], samples: int) -> Show:
    """Thumbnails of files, one for each sample; a file that cannot be read is shown by its name alone."""
    files = [Path(str(path)) for path in _checked(paths, samples, "images")]

    def show(row: int) -> Mapping[str, str]:
        try:
            return {"picture": thumbnail(files[row])}
        except UnreadableImageError:
            return {}

    return show


def show_texts(texts: Sequence[object], samples: int) -> Show:
    """The texts, cut where they are long."""
    known = [str(text) for text in _checked(texts, samples, "texts")]
    return lambda row: {"text": known[row] if len(known[row]) <= LONGEST else f"{known[row][:LONGEST]} ..."}


def thumbnail(path: Path) -> str:
    """A small copy of an image file, as a data URI."""
    try:
        image = open_rgb(path, draft=2 * SIDE)
        image.thumbnail((SIDE, SIDE))
        buffer = io.BytesIO()
        small = max(image.size) <= 96
        image.save(buffer, "PNG" if small else "JPEG", **({} if small else {"quality": 85}))
    except Exception as error:  # what a decoder raises on a broken file depends on the format
        raise UnreadableImageError(f"cannot read the image {path} ({error}): repair it or take it out.") from error
    kind = "png" if small else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _checked(given: Sequence[object], samples: int, what: str) -> Sequence[object]:
    if isinstance(given, str) or len(given) != samples:
        raise InputError(f"{what} must have one entry per sample, expected {samples}, got {len(given)}.")
    return given
