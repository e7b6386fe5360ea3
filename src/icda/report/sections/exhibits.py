"""Suspects to look at: their pictures or texts beside typical samples of both classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icda.report.markup import NOTHING, Markup, element, section, void
from icda.report.pictures import sample
from icda.report.results import Vocabulary, entries, listing, mapping

WORDS = (
    "Look for what the suspects share with the class they are tied to, and not with their own: a background, a colour, a "
    "camera, a word. If it is not what you want a model to learn, it is a shortcut. Typical samples are those with a "
    "middling sureness among the ones that are not suspected and that heads get right."
)
LABEL_WORDS = (
    "What heads that have not seen these samples take them for. If they are right, the label is wrong: correct it, or "
    "leave the sample out."
)
BUT_TIED = (
    " Look first: a shortcut was found, and samples that it misleads look the same, though their labels are right."
)


def vocabulary_of(audited: Mapping[str, Any]) -> Vocabulary:
    """The classes of an audit, as the page's filter numbers them."""
    return Vocabulary.of(listing(audited, "class_names"))


def suspects(audited: Mapping[str, Any], level: int) -> Markup:
    """For each pair of classes the suspects, typical samples of their class, and of the class they are tied to."""
    vocabulary, pairs = vocabulary_of(audited), entries(mapping(audited, "exhibits"), "pairs")
    blocks = [_pair(pair, vocabulary, min(level + 1, 6)) for pair in pairs]
    return section("Suspects to look at", level, element("p", WORDS), *blocks) if blocks else NOTHING


def doubtful(audited: Mapping[str, Any], level: int) -> Markup:
    """Pictures or texts of the most doubtful labels; empty without them."""
    vocabulary, labels = vocabulary_of(audited), entries(mapping(audited, "exhibits"), "labels")
    cards = [_card(entry, vocabulary, with_rival=True) for entry in labels]
    is_tied = mapping(mapping(audited, "verdicts"), "shortcut").get("answer") == "yes"
    words = element("p", LABEL_WORDS + (BUT_TIED if is_tied else ""))
    return section("Labels to check", level, words, element("div", *cards, class_="cards")) if cards else NOTHING


def _pair(pair: Mapping[str, Any], vocabulary: Vocabulary, level: int) -> Markup:
    label, tied_to, count = str(pair.get("label", "")), str(pair.get("tied_to", "")), pair.get("count", 0)
    columns = (
        (f"Suspects: labelled {label}", "suspects"),
        (f"Typical {label}", "own"),
        (f"Typical {tied_to}", "other"),
    )
    drawn = []
    for title, key in columns:
        cards = (_card(entry, vocabulary, with_rival=False) for entry in entries(pair, key))
        drawn.append(
            element("div", element("p", title, class_="small-title"), element("div", *cards, class_="cards small"))
        )
    samples = "1 sample" if count == 1 else f"{count} samples"
    heading = element(f"h{level}", f"{label}, tied to {tied_to}: {samples}")
    trio = element("div", *drawn, class_="trio")
    return element("div", heading, trio, class_="block", **vocabulary.filters(label, tied_to))


def _breakable(name: str) -> list[str | Markup]:
    """A path whose line may end after a slash, rather than in the middle of a word.

    >>> "".join(_breakable("cats/1.jpg"))
    'cats/<wbr>1.jpg'
    """
    *folders, last = name.split("/")
    return [part for folder in folders for part in (f"{folder}/", void("wbr"))] + [last]


def _card(entry: Mapping[str, Any], vocabulary: Vocabulary, with_rival: bool) -> Markup:
    name, label, rival = (str(entry.get(key, "")) for key in ("name", "label", "tied_to"))
    words = element("span", f"{label} → {rival}? ") if with_rival else ""
    shown = sample({**entry, "index": name}, f"{name}, labelled {label}")
    filters = vocabulary.filters(label, rival if with_rival else label)
    caption = element("figcaption", words, element("small", *_breakable(name)))
    return element("figure", shown, caption, class_="card", **filters)
