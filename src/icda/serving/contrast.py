"""Two lots of samples of a class, the usual ones and those that a plain model fails on: what makes a shortcut plain."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import numpy as np
from PIL import Image

from icda.auditing.page import Show, show_images, show_texts
from icda.data.embedding import Samples
from icda.data.images import UnreadableImageError, open_rgb
from icda.serving.fitting import Fitted

FEWEST = 2  # samples of a lot
MOST = 20_000  # of a lot that columns are compared by
LEAST = 0.4  # standard deviations between two means from which a property is named
SHOWN = 4  # words, columns or properties
LOOKED_AT = 40  # samples of each lot
WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|['\u2019](?=[^\W\d_])){2,}")  # "wasn't" is one
SIDE = 64  # pixels to which pictures are reduced before they are measured
# A property's name where it is larger in the first lot, and where it is smaller.
PROPERTIES = {
    "brightness": ("brighter", "darker"),
    "contrast": ("more contrast", "less contrast"),
    "colourfulness": ("more colourful", "less colourful"),
    "redness": ("redder", "less red"),
    "blueness": ("bluer", "less blue"),
    "greenness": ("greener", "less green"),
    "edges": ("more edges", "fewer edges"),
    "aspect ratio": ("wider", "taller"),
}


@dataclass(frozen=True)
class Strips:
    """What the page shows of a class side by side: usual training samples, and suspected ones."""

    label: str
    usual_name: str
    suspected_name: str
    usual: np.ndarray
    suspected: np.ndarray


def contrasts(fitted: Fitted) -> list[Strips]:
    """One for each class that has both lots, the one that a plain model does worst on first.

    By groups where they are known or guessed: the largest of the class, and the one with most errors. Else by the audit's
    ties.
    """
    return _by_tie(fitted) if fitted.groups is None else _by_group(fitted)


def _by_group(fitted: Fitted) -> list[Strips]:
    groups, labels = np.array(fitted.groups, dtype=object), fitted.data.training.labels
    judged = fitted.trial.before or fitted.trial.after
    right = {part.name: part.accuracy for part in judged.groups}
    found: list[tuple[float, Strips]] = []
    for label in np.unique(labels):
        own = labels == label
        names, counts = np.unique(groups[own].astype(str), return_counts=True)
        usual = names[counts.argmax()]
        others = [name for name, count in zip(names, counts, strict=True) if name != usual and count >= FEWEST]
        if not others:
            continue
        worst = min(others, key=lambda name: (right.get(name, 1.0), name))
        lots = (np.flatnonzero(own & (groups == name)) for name in (usual, worst))
        found.append((right.get(worst, 1.0), Strips(str(label), str(usual), str(worst), *lots)))
    found.sort(key=lambda pair: (pair[0], pair[1].label))
    return [contrast for _, contrast in found]


def _by_tie(fitted: Fitted) -> list[Strips]:
    names, (ties, _) = fitted.audit.class_names, fitted.audit.in_memory()
    return [
        Strips(names[own], f"{names[own]}, recognised", f"{names[own]}, mostly taken for {names[other]}", *lots)
        for own, other, *lots in lots_by_answer(ties.label, ties.predicted, FEWEST)
    ]


def lots_by_answer(
    targets: np.ndarray, predicted: np.ndarray, fewest: int = 1
) -> list[tuple[int, int, np.ndarray, np.ndarray]]:
    """Samples of a class that models which have not seen them recognise, and those that they take for another.

    Of each class that has both: its number, the class that the second lot is mostly taken for, and both lots; the class
    with most in the second lot first.
    """
    found = []
    for own in np.unique(targets):
        right, wrong = (np.flatnonzero((targets == own) & part) for part in (predicted == own, predicted != own))
        if min(len(right), len(wrong)) >= fewest:
            found.append((int(own), int(np.bincount(predicted[wrong]).argmax()), right, wrong))
    return sorted(found, key=lambda one: -len(one[3]))


def show_inputs(samples: Samples) -> Show:
    """How each image or text is shown, by its place."""
    show = show_images if samples.kind == "image" else show_texts
    return show(samples.inputs, len(samples))


def in_words(data: Samples, first: np.ndarray, second: np.ndarray) -> str:
    """How the first rows differ from the second: plain properties of pictures, words of texts, columns of a table."""
    if data.inputs is None:
        return ", ".join(f"{name} {said}" for name, said in columns_in_words(data, first, second))
    lots = [[data.inputs[row] for row in rows] for rows in (first, second)]
    if data.kind == "image":
        try:
            return differing_pictures(*([Path(str(path)) for path in lot] for lot in lots))
        except (UnreadableImageError, OSError):
            return ""
    return differing_texts(*([str(text) for text in lot] for lot in lots))


def columns_in_words(data: Samples, first: np.ndarray, second: np.ndarray) -> list[tuple[str, str]]:
    """The columns that differ most, each with what it is in the first rows and in the second."""
    names = data.reads.columns
    if names is None or len(names) != data.features.shape[1]:
        return []
    one, other = (np.asarray(data.features[rows[:MOST]], dtype=np.float64) for rows in (first, second))
    dates = {one.name for one in data.reads.table or () if one.kind == "date"}
    shown = []
    for name, gap in differing_columns(one, other, list(names)):
        place = names.index(name)
        means = one[:, place].mean(), other[:, place].mean()
        is_share = np.isin(data.features[:, place], (0, 1)).all()
        if gap < 0 and data.reads.table is not None and is_share:
            continue  # the level that is rarer for it says the same again
        if name in dates:
            days = (date(1970, 1, 1) + timedelta(days=round(mean)) for mean in means)  # as they are encoded
            said, word = " beside ".join(map(str, days)), "later" if gap > 0 else "earlier"
        else:
            said = " beside ".join(f"{100 * mean:.0f} %" if is_share else f"{mean:.4g}" for mean in means)
            word = "higher" if gap > 0 else "lower"
        shown.append((name, f"{word} ({said})"))
    return shown


def picture_properties(path: Path) -> list[float]:
    """What can be measured of a picture in plain terms, in the order of `PROPERTIES`."""
    image = open_rgb(path, draft=2 * SIDE)
    ratio = np.log(image.width / image.height)
    pixels = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR), dtype=np.float64) / 255
    grey = pixels.mean(2)
    red, green, blue = (pixels[:, :, k].mean() - grey.mean() for k in range(3))
    edges = np.abs(np.diff(grey, axis=0)).mean() + np.abs(np.diff(grey, axis=1)).mean()
    colourful = (pixels.max(2) - pixels.min(2)).mean()
    return [grey.mean(), grey.std(), colourful, red, blue, green, edges, float(ratio)]


def differing_pictures(first: Sequence[Path], second: Sequence[Path]) -> str:
    """How the first lot differs from the second, in plain properties; empty if in none of them."""
    one, other = (np.array([picture_properties(path) for path in paths[:LOOKED_AT]]) for paths in (first, second))
    found = differing_columns(one, other, list(PROPERTIES))
    return ", ".join(PROPERTIES[name][0 if gap > 0 else 1] for name, gap in found)


def differing_texts(first: Sequence[str], second: Sequence[str]) -> str:
    """Words that are typical of the first lot beside the second: in how many of its texts they stand.

    >>> differing_texts(["a fine book", "the book"], ["a film", "the film"])
    'book'
    """
    counts = [Counter(word for text in texts for word in set(WORD.findall(text.lower()))) for texts in (first, second)]
    score = {
        word: np.log((count + 0.5) / (len(first) + 1)) - np.log((counts[1][word] + 0.5) / (len(second) + 1))
        for word, count in counts[0].items()
        if count >= max(2, 0.1 * len(first))
    }
    typical = sorted((word for word in score if score[word] > np.log(2)), key=lambda word: (-score[word], word))
    return ", ".join(typical[:SHOWN])


def differing_columns(first: np.ndarray, second: np.ndarray, names: Sequence[str]) -> list[tuple[str, float]]:
    """Columns whose means differ most, in standard deviations, the largest first."""
    if not len(first) or not len(second):
        return []
    spread = np.sqrt(0.5 * (first.var(0) + second.var(0)))
    gaps = (first.mean(0) - second.mean(0)) / np.where(spread > 0, spread, 1)
    gaps = np.where(spread > 0, gaps, np.sign(first.mean(0) - second.mean(0)))
    order = np.argsort(-np.abs(gaps), kind="stable")[:SHOWN]
    return [(names[k], float(gaps[k])) for k in order if abs(gaps[k]) >= LEAST]
