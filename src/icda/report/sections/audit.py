"""The audit: what to try, what ties cost, and which samples to look at."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from icda.report.formatting import count, decimal, percent
from icda.report.markup import NOTHING, Markup, Part, definitions, element, note, section, table, void
from icda.report.results import Vocabulary, as_number, entries, listing, mapping, matrix
from icda.report.sections.samples import sample
from icda.report.sections.strengths import ties
from icda.report.sections.verdicts import in_short, verdict_parts

FEW_SHOWN = 15
CLASSES_SHOWN = 30
SAMPLES_SHOWN = 50
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

Audited = Mapping[str, Any]  # what icda.audit(...).as_dict() gives
Show = Callable[[Any], str]


def audit(audited: Audited, level: int) -> Markup:
    """The audit of `icda.audit(...).as_dict()` under headings of `level`; empty without one."""
    if not audited:
        return NOTHING
    return section("Audit", level, *(content for _, _, content in anchored_parts(audited, level + 1)))


def anchored_parts(audited: Audited, level: int, leave_out: Collection[str] = ()) -> list[Part]:
    """The parts of the audit under headings of `level`, each with its id and title; what the audit lacks is left out."""
    made = ((place, title, part(audited, level)) for place, (title, part) in PARTS.items() if place not in leave_out)
    return [part for part in made if part[2]]


def _recommendation(audited: Audited, level: int) -> Markup:
    # The verdicts, where there are any, begin with the summary already.
    said = "" if mapping(audited, "verdicts") else audited.get("summary", "")
    children: list[object] = [element("p", said, class_="lede")] if said else []
    for finding in entries(audited, "findings"):
        children.append(element(f"h{min(level + 1, 6)}", str(finding.get("name", "")).replace("_", " ").capitalize()))
        children.append(element("p", finding.get("advice", "")))
        if not mapping(audited, "verdicts"):  # else the reasons stand there
            children.append(element("ul", *(element("li", reason) for reason in listing(finding, "reasons"))))
    children += [note(words) for words in listing(audited, "notes")]
    return section("What to try", level, *children) if children else NOTHING


def _costs(audited: Audited, level: int) -> Markup:
    def gap(entry: Mapping[str, Any]) -> float:
        part, rest = as_number(entry.get("accuracy_suspected")), as_number(entry.get("accuracy_rest"))
        return 0.0 if part is None or rest is None else part - rest

    classes = sorted(entries(mapping(audited, "ties"), "classes"), key=gap)
    if not classes:
        return NOTHING
    shown = classes[:CLASSES_SHOWN]
    vocabulary, rows = vocabulary_of(audited), []
    for entry in shown:
        shares = (percent(as_number(entry.get(key))) for key in ("accuracy_suspected", "accuracy_rest"))
        counts = (count(entry.get(key)) for key in ("samples", "suspected"))
        strength = decimal(entry.get("mean_strength"))
        rows.append([entry.get("name", ""), entry.get("tied_to") or "", *counts, strength, *shares])
    own = [vocabulary.filters(entry.get("name", ""), entry.get("tied_to") or "") for entry in shown]
    header = ["Class", "Mostly tied to", "Samples", "Suspected", "Strength", "Right, suspected", "Right, rest"]
    some = f", the {len(shown)} widest gaps of {len(classes)}" if len(classes) > len(shown) else ""
    caption = f"Suspected part of each class beside the rest, by heads that have not seen the sample{some}"
    words = (
        "The suspected part is found with the help of what such heads get wrong, so it looks worse than the true group "
        "would: read its accuracy as a low estimate."
    )
    return section("What ties cost", level, table(caption, header, rows, 2, own), note(words))


def _matrix(audited: Audited, level: int) -> Markup:
    towards = matrix(mapping(audited, "ties"), "matrix")
    names = [str(name) for name in listing(audited, "class_names")]
    if not towards or len(names) != len(towards):
        return NOTHING
    return section("Which class is tied to which", level, *ties(towards, names, vocabulary_of(audited)))


def _tied(audited: Audited, level: int) -> Markup:
    title, listed = "Samples tied to a wrong class", entries(audited, "samples")
    samples = [entry for entry in listed if (as_number(entry.get("tie")) or 0.0) > 0][:SAMPLES_SHOWN]
    if not samples:
        return section(title, level, element("p", "No sample is tied to a wrong class.")) if listed else NOTHING
    suspected = as_number(mapping(audited, "ties").get("suspected"))
    caption = f"The {len(samples)} samples most tied to a wrong class"
    caption += "" if suspected is None else f"; {suspected:,.0f} are suspected in all"
    columns: dict[str, tuple[str, Show]] = {
        "Sample": ("name", str),
        "Label": ("label", str),
        "Tied to": ("tied_to", str),
        "Predicted": ("predicted", str),
        "Strength": ("strength", decimal),
        "Tie": ("tie", lambda tie: decimal(tie, 2)),
        "Suspected": ("suspected", _tick),
    }
    return section(title, level, _ranking(audited, samples, caption, columns, names=4))


def _labels(audited: Audited, level: int) -> Markup:
    noise, samples = mapping(audited, "label_noise"), entries(audited, "doubtful_labels")[:SAMPLES_SHOWN]
    if not noise:
        return NOTHING
    words = (
        f"About {percent(as_number(noise.get('rate')))} of the labels are estimated to be wrong; "
        f"{count(noise.get('issues'))} are marked by {noise.get('found_by', 'icda')}. A sample of a rare group looks much "
        "like one with a wrong label: look before you delete."
    )
    columns: dict[str, tuple[str, Show]] = {
        "Sample": ("name", str),
        "Label": ("label", str),
        "Looks like": ("tied_to", str),
        "Quality": ("label_quality", lambda quality: decimal(quality, 4)),
        "Marked": ("label_issue", _tick),
    }
    shown = _ranking(audited, samples, f"The {len(samples)} most doubtful labels", columns, names=3)
    return section("Doubtful labels", level, element("p", words), shown if samples else "")


def _ranking(
    audited: Audited, samples: Sequence[Audited], caption: str, columns: Mapping[str, tuple[str, Show]], names: int
) -> Markup:
    """Samples one below the other, each with the filters of its label and of the class it is tied to."""
    rows = [[show(entry.get(key, "")) for key, show in columns.values()] for entry in samples]
    vocabulary = vocabulary_of(audited)
    own = [vocabulary.filters(entry.get("label", ""), entry.get("tied_to", "")) for entry in samples]
    return table(caption, list(columns), rows, names, own)


def _tick(value: object) -> str:
    return "yes" if value else ""


def _imbalance(audited: Audited, level: int) -> Markup:
    imbalance = mapping(audited, "imbalance")
    if not imbalance:
        return NOTHING
    few = [str(name) for name in listing(imbalance, "few")]
    named = ", ".join(few[:FEW_SHOWN]) + (" ..." if len(few) > FEW_SHOWN else "")
    facts = [
        ("Largest class over smallest", decimal(imbalance.get("ratio"), 1)),
        ("Entropy of the class shares, of its maximum", decimal(imbalance.get("entropy"))),
        ("Few-shot classes (under 20 samples)", f"{len(few)}{': ' if few else ''}{named}"),
        ("Medium (20 to 100)", count(imbalance.get("medium"))),
        ("Many-shot (over 100)", count(imbalance.get("many"))),
    ]
    return section("Class sizes", level, definitions(facts, "facts"))


def vocabulary_of(audited: Audited) -> Vocabulary:
    """The classes of an audit, as the page's filter numbers them."""
    return Vocabulary.of(listing(audited, "class_names"))


def suspects(audited: Audited, level: int) -> Markup:
    """For each pair of classes the suspects, typical samples of their class, and of the class they are tied to."""
    vocabulary, pairs = vocabulary_of(audited), entries(mapping(audited, "exhibits"), "pairs")
    blocks = [_pair(pair, vocabulary, min(level + 1, 6)) for pair in pairs]
    return section("Suspects to look at", level, element("p", WORDS), *blocks) if blocks else NOTHING


def doubtful(audited: Audited, level: int) -> Markup:
    """Pictures or texts of the most doubtful labels; empty without them."""
    vocabulary, labels = vocabulary_of(audited), entries(mapping(audited, "exhibits"), "labels")
    cards = [_card(entry, vocabulary, with_rival=True) for entry in labels]
    is_tied = mapping(mapping(audited, "verdicts"), "shortcut").get("answer") == "yes"
    words = element("p", LABEL_WORDS + (BUT_TIED if is_tied else ""))
    return section("Labels to check", level, words, element("div", *cards, class_="cards")) if cards else NOTHING


def _pair(pair: Audited, vocabulary: Vocabulary, level: int) -> Markup:
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


def _card(entry: Audited, vocabulary: Vocabulary, with_rival: bool) -> Markup:
    name, label, rival = (str(entry.get(key, "")) for key in ("name", "label", "tied_to"))
    words = element("span", f"labelled {label}: is it {rival}? ") if with_rival else ""
    shown = sample({**entry, "index": name}, f"{name}, labelled {label}")
    filters = vocabulary.filters(label, rival if with_rival else label)
    *folders, last = name.split("/")  # a line of a path may end after a slash, rather than in the middle of a word
    broken = [part for folder in folders for part in (f"{folder}/", void("wbr"))]
    caption = element("figcaption", words, element("small", *broken, last))
    return element("figure", shown, caption, class_="card", **filters)


PARTS: dict[str, tuple[str, Callable[[Audited, int], Markup]]] = {
    "short": ("In short", in_short),
    "verdicts": ("Verdicts and treatment", verdict_parts),
    "suspects": ("Suspects to look at", suspects),
    "check": ("Labels to check", doubtful),
    "advice": ("What to try", _recommendation),
    "costs": ("What ties cost", _costs),
    "matrix": ("Which class is tied to which", _matrix),
    "tied": ("Samples tied to a wrong class", _tied),
    "labels": ("Doubtful labels", _labels),
    "sizes": ("Class sizes", _imbalance),
}
