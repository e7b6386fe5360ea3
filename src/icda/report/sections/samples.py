"""Single samples, to be looked at: the most tied ones, heat maps, counterfactual pictures."""

import base64
import binascii
import re
import struct
from collections.abc import Mapping
from typing import Any

from icda.errors import InputError
from icda.report.charts import bar
from icda.report.formatting import percent
from icda.report.markup import NOTHING, Markup, definitions, element, join, section, void
from icda.report.results import Run, as_number, entries, whole

SHOWN_AT_ONCE = 24
NOT_TIED = "No sample is tied to another class: every strength is zero."
URI = re.compile(r"data:image/(?:png|webp|jpeg|gif);base64,[A-Za-z0-9+/=]+")
AT_ONCE = 280  # characters of a text that are seen without opening it
SMALL = 96  # pixels a side; smaller pictures are enlarged without blur


def tied(run: Run, level: int) -> Markup:
    """The samples most tied to a class that is not theirs, strongest first; empty without them."""
    listed = entries(run.explanations, "tied")
    shown = [entry for entry in listed if (as_number(entry.get("strength")) or 0.0) > 0]
    title = "Samples tied to a wrong class"
    if not shown:
        return section(title, level, element("p", NOT_TIED)) if listed else NOTHING
    top = max(as_number(entry.get("strength")) or 0.0 for entry in shown)
    words = (
        f"The {len(shown)} samples whose features point most strongly to another class than their label: "
        "look for shortcuts, borderline cases and wrong labels."
    )
    return section(title, level, element("p", words), _grid([_tied_card(run, entry, top) for entry in shown]))


def gradcam(run: Run, level: int) -> Markup:
    """Where the network looked; empty without heat maps."""
    part = run.part("gradcam")
    cards = [_heat_card(run, entry) for entry in entries(part, "samples")]
    share = as_number(part.get("mean_centre_share"))
    words = "Grad-CAM: the warmer a place, the more it supports the predicted class."
    words += f" Layer {part['layer']}." if part.get("layer") else ""
    words += f" On average {percent(share)} of the heat lies in the centre box." if share is not None else ""
    return section("Grad-CAM", level, element("p", words), _grid(cards, "pairs")) if cards else NOTHING


def counterfactuals(run: Run, level: int) -> Markup:
    """Features moved towards another class and mapped back to pixels, beside real neighbours; empty without them."""
    part = run.part("counterfactuals")
    cards = [_counterfactual_card(run, entry) for entry in entries(part, "samples")]
    words = "The picture whose features come closest to the augmented ones, found by optimisation in pixel space, and "
    words += "the nearest real samples in feature space beside it: believe what both show."
    words += f" Augmentation: {part['augmentation']}." if part.get("augmentation") else ""
    words += f" Seed {part['seed']}." if part.get("seed") is not None else ""
    return section("Counterfactual pictures", level, element("p", words), _grid(cards, "strips")) if cards else NOTHING


def _grid(cards: list[Markup], css: str = "") -> Markup:
    first, rest = (
        element("div", *part, class_=f"cards {css}".strip()) for part in (cards[:SHOWN_AT_ONCE], cards[SHOWN_AT_ONCE:])
    )
    more = len(cards) - SHOWN_AT_ONCE
    return join([first, element("details", element("summary", f"{more} more"), rest)]) if more > 0 else first


def _tied_card(run: Run, entry: Mapping[str, Any], top: float) -> Markup:
    target, towards = run.class_name(entry.get("target")), run.class_name(entry.get("towards"))
    strength = as_number(entry.get("strength"))
    where = f"{entry.get('split') or 'train'} {entry.get('index', '')}".strip()
    shown = sample(entry, f"{where}: labelled {target}, tied to {towards}")
    facts = _facts(
        ("labelled", target),
        ("tied to", towards),
        ("predicted", run.class_name(entry.get("prediction"))),
        ("group", run.group_name(entry.get("group"))),
        ("strength", "" if strength is None else f"{strength:.3f}"),
    )
    meter = "" if strength is None else bar(strength / top)
    filters = run.filters(entry.get("target"), entry.get("towards"), group=entry.get("group"))
    caption = element("figcaption", facts, meter, element("small", where))
    return element("figure", shown, caption, class_="card", **filters)


def _heat_card(run: Run, entry: Mapping[str, Any]) -> Markup:
    target, prediction = run.class_name(entry.get("target")), run.class_name(entry.get("prediction"))
    number = entry.get("index", "")
    images = element(
        "div",
        picture(entry.get("picture"), f"sample {number}, {target}"),
        picture(entry.get("heat"), f"sample {number} with the heat of Grad-CAM for {prediction}"),
        class_="images",
    )
    facts = _facts(
        ("true", target),
        ("predicted", verdict(entry, prediction)),
        ("group", run.group_name(entry.get("group"))),
        ("in centre", percent(as_number(entry.get("centre_share")))),
    )
    filters = run.filters(entry.get("target"), entry.get("prediction"), group=entry.get("group"))
    caption = element("figcaption", facts, element("small", f"sample {number}"))
    return element("figure", images, caption, class_="card", **filters)


def verdict(entry: Mapping[str, Any], prediction: str) -> Markup:
    """A prediction with a mark that does not rest on colour."""
    right = whole(entry.get("target")) == whole(entry.get("prediction"))
    mark, css, words = ("✓", "good", "right") if right else ("✗", "bad", "wrong")
    return join([prediction, " ", element("span", mark, class_=css, aria_label=words, role="img")])


def _counterfactual_card(run: Run, entry: Mapping[str, Any]) -> Markup:
    target, towards = run.class_name(entry.get("target")), run.class_name(entry.get("towards"))
    number, error = entry.get("index", ""), as_number(entry.get("feature_error"))
    images = [
        _under(picture(entry.get("picture"), f"sample {number}, {target}"), f"real {target}"),
        element("span", "→", class_="arrow", aria_hidden="true"),
        _under(picture(entry.get("made"), f"sample {number} moved towards {towards}"), f"towards {towards}"),
    ]
    near = entries(entry, "neighbours")
    if near:
        images.append(element("span", "≈", class_="arrow", aria_hidden="true"))
    for neighbour in near:
        name = run.class_name(neighbour.get("target"))
        alt = f"real neighbour, sample {neighbour.get('index', '')}, {name}"
        images.append(_under(picture(neighbour.get("picture"), alt), f"real {name}"))
    note = f"sample {number}" + ("" if error is None else f", feature error {error:.3g}")
    filters = run.filters(entry.get("target"), entry.get("towards"), group=entry.get("group"))
    row = element("div", *images, class_="images")
    return element("figure", row, element("figcaption", element("small", note)), class_="card", **filters)


def _under(image: Markup, words: str) -> Markup:
    return element("span", image, element("small", words), class_="under")


def _facts(*pairs: tuple[str, object]) -> Markup:
    return definitions([pair for pair in pairs if pair[1] != ""], "pairs")


def picture(uri: object, alt: str) -> Markup:
    """An image of a data URI, with what it shows in words; anything that is no picture is refused."""
    if not isinstance(uri, str) or not URI.fullmatch(uri):
        raise InputError(f"a picture in explanations.json is data:image/png;base64,..., got {str(uri)[:60]!r}.")
    return void("img", src=uri, alt=alt, class_="picture small" if _is_small(uri) else "picture", decoding="async")


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
