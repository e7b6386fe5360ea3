"""Pictures of samples, as data URIs inside the page."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Mapping
from typing import Any

from icda.errors import InputError
from icda.report.markup import Markup, element, void

URI = re.compile(r"data:image/(?:png|webp|jpeg|gif);base64,[A-Za-z0-9+/=]+")
AT_ONCE = 280  # characters of a text that are seen without opening it
SMALL = 96  # pixels a side; smaller pictures are enlarged without blur


def picture(uri: object, alt: str, css: str = "") -> Markup:
    """An image of a data URI, with what it shows in words; anything that is no picture is refused."""
    if not isinstance(uri, str) or not URI.fullmatch(uri):
        raise InputError(f"a picture in explanations.json is data:image/png;base64,..., got {str(uri)[:60]!r}.")
    classes = " ".join(filter(None, ["picture", css, "small" if _is_small(uri) else ""]))
    return void("img", src=uri, alt=alt, class_=classes, decoding="async")


def sample(entry: Mapping[str, Any], alt: str) -> Markup:
    """A sample's picture or text; a sample that has neither (a row of features) shows its number."""
    if entry.get("picture") is not None:
        return picture(entry["picture"], alt)
    if entry.get("text") is not None:
        return element("blockquote", *_folded(str(entry["text"])), class_="text")
    return element("span", f"sample {entry.get('index', '')}", class_="text")


def _folded(text: str) -> list[str | Markup]:
    """A text as it is, or its beginning, to be opened; cut between words where there are any."""
    if len(text) <= AT_ONCE:
        return [text]
    place = text.rfind(" ", AT_ONCE // 2, AT_ONCE)
    place = AT_ONCE if place < 0 else place
    return [element("details", element("summary", text[:place]), element("span", text[place:]))]


def _is_small(uri: str) -> bool:
    """Whether a PNG says in its header that it is small; other formats are photographs, which may be smoothed."""
    try:
        start = base64.b64decode(uri.partition(",")[2][:32])
    except binascii.Error:
        return False
    if start[12:16] != b"IHDR":
        return False
    width, height = struct.unpack(">II", start[16:24])
    return max(width, height) <= SMALL
