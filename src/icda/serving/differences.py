"""In words: what two lots of samples differ in, so that a person finds a name for it quickly."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from icda.data.images import open_rgb

LEAST = 0.4  # standard deviations between two means from which a property is named
SHOWN = 4  # words, columns or properties
LOOKED_AT = 40  # samples of each lot
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
    counts = [Counter(word for text in texts for word in set(_words(text))) for texts in (first, second)]
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


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_](?:[^\W\d_]|['\u2019](?=[^\W\d_])){2,}", text.lower())  # "wasn't" is one word
