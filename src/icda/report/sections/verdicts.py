"""What an audit found and what to do: in short, for a reader who does not program; then verdict by verdict."""

import shlex
from collections.abc import Mapping
from typing import Any

from icda.report.formatting import decimal, percent
from icda.report.markup import NOTHING, Markup, definitions, element, join, section, table
from icda.report.results import as_number, listing, mapping

NAMES = {
    "shortcut": "Shortcut",
    "label_noise": "Wrong labels",
    "long_tail": "Long tail",
    "overlap": "Classes overlap",
    "uninformative": "Uninformative features",
}
MEANINGS = {
    "shortcut": "something that goes with the class in these data, such as a background, and that a model would follow",
    "label_noise": "labels that say another class than the sample shows",
    "long_tail": "classes with far fewer samples than others",
    "overlap": "classes that these features do not tell apart well",
    "uninformative": "features that say nothing about the class",
}
PYTHON = "icda.RobustClassifier().fit(X, y)"
TERMS = (
    ("Head", "The last, linear layer of a classifier, fitted here without the samples it is then asked about."),
    ("Tied", "A sample is tied to a wrong class if a head that has not seen it sees that class in it."),
    ("Strength", "How likely that head finds the wrong class, from 0 to 1."),
    ("Tie", "How much more heads that follow the shortcut see the wrong class than heads that do not."),
    ("Suspected", "Samples with a tie above 0. Some are only hard to tell: a reason to look, not a verdict."),
    ("Quality of a label", "From 0 to 1: how sure heads are of the label against its best rival."),
    ("Plain model", "A model trained as usual, with cross entropy, that nothing was told about groups or shortcuts."),
    ("Prior", "What a model is told to expect before it looks at a sample. In training it makes a shortcut useless."),
    (
        "Confidence",
        "Of a shortcut and of wrong labels: how often such an answer was right on data with known troubles. Of the others: "
        "a score from 0.5 (undecided) to 1.",
    ),
    ("Treatment", "What is changed in the training because of what was found, if a trial shows that it helps."),
)


def command_of(audited: Mapping[str, Any]) -> str:
    """What to run next: a command where the audit was made from a file, else a line of Python.

    >>> command_of({"settings": {"data": "my photos.npz"}})
    "icda fit 'my photos.npz' --out model"
    """
    data = mapping(audited, "settings").get("data")
    if not isinstance(data, str):
        return PYTHON
    options = mapping(audited, "settings").get("options")
    named = [str(word) for word in options] if isinstance(options, list | tuple) else []
    return shlex.join(["icda", "fit", data, *named, "--out", "model"])


def in_short(audited: Mapping[str, Any], level: int) -> Markup:
    """What was found, in plain words, and the steps to take; empty without verdicts."""
    verdicts = mapping(audited, "verdicts")
    if not verdicts:
        return NOTHING
    found = found_sentences(audited)
    unclear = [NAMES[kind].lower() for kind in NAMES if answer_of(verdicts, kind) == "cannot tell"]
    children = [element("p", sentence, class_="lede") for sentence in found]
    if unclear:
        children.append(element("p", f"It cannot be told from these data: {', '.join(unclear)}."))
    steps = element("ol", *(element("li", *step) for step in _steps(audited)), class_="steps")
    return section("In short", level, *children, element("p", "What to do:"), steps)


def found_sentences(audited: Mapping[str, Any]) -> list[str]:
    """What was found, one sentence or two for each kind of trouble; never empty."""
    verdicts = mapping(audited, "verdicts")
    found = [sentence for kind, sentence in _sentences(audited).items() if answer_of(verdicts, kind) == "yes"]
    return found or ["Nothing was found that calls for more than plain training."]


def glossary(audited: Mapping[str, Any], level: int) -> Markup:
    """The words of the page."""
    kinds = [(NAMES[kind], f"{MEANINGS[kind].capitalize()}.") for kind in NAMES if kind in mapping(audited, "verdicts")]
    return section("Words on this page", level, definitions([*TERMS, *kinds], "facts wide"))


def answer_of(verdicts: Mapping[str, Any], kind: str) -> str:
    verdict = verdicts.get(kind)
    return str(verdict.get("answer", "")) if isinstance(verdict, Mapping) else ""


def _sentences(audited: Mapping[str, Any]) -> dict[str, str]:
    suspected = as_number(mapping(audited, "ties").get("suspected"))
    rate = percent(as_number(mapping(audited, "label_noise").get("rate")))
    ratio = as_number(mapping(audited, "imbalance").get("ratio"))
    many = "" if suspected is None else f" {suspected:,.0f} samples are suspected."
    times = "" if ratio is None else f" {ratio:,.1f} times as many samples as the smallest"
    return {
        "uninformative": "These features say nothing about the classes: a model trained on them would guess.",
        "shortcut": (
            "There is a shortcut: something that goes with the class in these data, such as a background, is easier to see "
            f"than the class itself. A model would follow it, and fail where it is absent.{many}"
        ),
        "label_noise": f"Many labels look wrong, by estimate about {rate}. A model would learn the mistakes.",
        "long_tail": f"The largest class has{times or ' many more samples'}. A model would neglect the small ones.",
        "overlap": "Some classes look alike to these features: even a good model will mix them up.",
    }


def _steps(audited: Mapping[str, Any]) -> list[list[object]]:
    verdicts, exhibits = mapping(audited, "verdicts"), mapping(audited, "exhibits")
    steps: list[list[object]] = []
    if answer_of(verdicts, "uninformative") == "yes":
        steps.append(["Check that features and labels belong to the same rows, or use another encoder."])
    where = "Suspects to look at" if listing(exhibits, "pairs") else "Samples tied to a wrong class"
    if answer_of(verdicts, "shortcut") in ("yes", "cannot tell"):
        steps.append([f"Look at the samples under “{where}”: what do they share with the class they are tied to?"])
    elif as_number(mapping(audited, "ties").get("suspected")):
        steps.append([f"Look at the samples under “{where}” all the same: “no” is weaker evidence than “yes”."])
    if answer_of(verdicts, "label_noise") in ("yes", "cannot tell"):
        steps.append(["Check the labels under “Doubtful labels” by hand, from the top, and correct the wrong ones."])
    if answer_of(verdicts, "overlap") == "yes":
        steps.append(["Collect more samples of the classes that are mixed up, or use another encoder."])
    if answer_of(verdicts, "shortcut") == "yes":
        steps.append(["Collect more samples like the suspects if you can: it is the surest cure."])
    command = element("pre", element("code", command_of(audited)), class_="command")
    steps.append(["Fit a classifier that takes account of what was found; its page says what that brought:", command])
    return steps


def verdict_parts(audited: Mapping[str, Any], level: int) -> Markup:
    """A table of answers, the reasons for each, and the treatment; empty without verdicts and treatment."""
    return join([_answers(audited, level), _treatment(audited, level)])


def _answers(audited: Mapping[str, Any], level: int) -> Markup:
    verdicts = mapping(audited, "verdicts")
    if not verdicts:
        return NOTHING
    rows, reasons = [], []
    for kind, verdict in verdicts.items():
        if not isinstance(verdict, Mapping):
            continue
        name = NAMES.get(kind, kind)
        rows.append([name, verdict.get("answer", ""), decimal(verdict.get("confidence"), 2)])
        meant = f": {MEANINGS[kind]}" if kind in MEANINGS else ""
        reasons.append(element("p", element("strong", name), f"{meant}."))
        reasons.append(element("ul", *(element("li", reason) for reason in listing(verdict, "reasons"))))
    caption = (
        "One answer per kind of trouble; the confidence of the first two is how often such an answer was right on data "
        "with known troubles"
    )
    shown = table(caption, ["Kind", "Answer", "Confidence"], rows, names=2)
    # A whole audit says it under "In short" already.
    said = "" if mapping(audited, "ties") else audited.get("summary")
    lede = [element("p", said, class_="lede")] if said else []
    why = element("details", element("summary", "Why: the figures behind each answer"), *reasons)
    return section("Verdicts", level, *lede, shown, why)


def _treatment(audited: Mapping[str, Any], level: int) -> Markup:
    treatment = mapping(audited, "treatment")
    if not treatment:
        return NOTHING
    effect = mapping(treatment, "effect")
    name = str(treatment.get("name", "")).replace("_", " ").capitalize()
    said = [element("p", str(treatment.get("sentence") or f"{name}."), class_="lede")]
    said += [element("p", reason) for reason in listing(treatment, "reasons")]
    if effect:
        said.append(element("p", f"Expected, by heads that have not seen the samples: {effect.get('sentence', '')}."))
    return section("Treatment", level, *said)
