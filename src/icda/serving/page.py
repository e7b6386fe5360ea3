"""The page of `icda fit`: what was found, what was done, what it cost and brought, what to check by hand."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from icda.auditing.page import settings_part
from icda.report.formatting import duration, percent
from icda.report.markup import Markup, Part, definitions, element, framed, section, table
from icda.report.sections.audit import anchored_parts, vocabulary_of
from icda.report.sections.verdicts import answer_of, found_sentences, glossary
from icda.serving.fitting import Fitted
from icda.serving.head import HeadModel
from icda.serving.trial import Trial, TrialLine

SHOWN = 50  # rows of each ranking
LOSS = 0.01  # of accuracy, from which the page says what it is given for
NO_GAIN = (
    "Plain training gets more of these samples right. No shortcut was treated, so that a plain model (--method ce) may "
    "serve you better, unless rare classes matter to you as much as frequent ones."
)
TRADE = (
    "Plain training is better on samples like these, most of which the shortcut helps; this model is better where the "
    "shortcut is absent or misleads. If your new samples come from the same source as these and always will, a plain model "
    "(--method ce) may serve you better."
)
NEW = {"image": "new_photos", "text": "new_texts.csv", "features": "new.npz"}


def render_fit_page(fitted: Fitted, folder: str, data: str) -> str:
    """One self-contained page."""
    audited = {**fitted.audit.as_dict(SHOWN), **_exhibits(fitted)}
    # “Done” and “What it brought” say what was done and what came of it; the audit's own advice may have been another,
    # and what it expects was estimated with its own heads.
    audited["treatment"] = {}
    parts: list[Part] = [
        ("result", "The result", _result(fitted, audited)),
        ("brought", "What it brought", section("What it brought", 2, *_brought(fitted))),
        ("check", "What to check by hand", section("What to check by hand", 2, _checks(fitted, audited))),
        ("use", "How to use it", section("How to use it", 2, *_use(fitted, folder))),
        *(
            (f"audit-{place}", title.removesuffix(" and treatment"), part)
            for place, title, part in anchored_parts(audited, 2, ("short", "advice"))
        ),
        ("cost", "What it cost", section("What it cost", 2, definitions(_cost(fitted), "facts"))),
        ("words", "Words on this page", glossary(audited, 2)),
        *settings_part(audited),
    ]
    title = f"A classifier of {len(fitted.model.classes)} classes from {data}"
    return framed(title, "icda fit", parts, vocabulary_of(audited))


def _exhibits(fitted: Fitted) -> dict[str, Any]:
    samples, test = fitted.data.samples, fitted.data.test
    if samples is None:
        return {}
    inputs = [item for row, item in enumerate(samples.inputs) if test is None or not test[row]]
    return fitted.audit.exhibits(images=inputs) if samples.kind == "image" else fitted.audit.exhibits(texts=inputs)


def _result(fitted: Fitted, audited: Mapping[str, Any]) -> Markup:
    trial = fitted.trial
    right = f"{percent(trial.after.accuracy)} of the samples it has not seen are classified correctly"
    worst = f"{percent(trial.after.worst_class.accuracy)} in the worst class ({trial.after.worst_class.name})"
    lede = element("p", f"{right}, {worst}.", class_="lede")
    found = element("p", element("strong", "Found: "), " ".join(found_sentences(audited)))
    done = element("p", element("strong", "Done: "), fitted.done)
    skipped = fitted.data.skipped
    left = element("p", f"{len(skipped)} unreadable files were left out.", class_="note") if skipped else ""
    return section("The result", 2, lede, found, done, left)


def _brought(fitted: Fitted) -> list[Markup]:
    trial, plain = fitted.trial, fitted.plain

    def row(line: TrialLine) -> list[object]:
        before = "" if line.before is None else percent(line.before.accuracy)
        return [line.name, line.which, line.after.samples, before, percent(line.after.accuracy)]

    header = ["", "Which", "Samples", "Plain training", "This model"]
    caption = f"Shares that are right, before and after; judged: {trial.held_out}"
    said = [table(caption, header, [row(line) for line in trial.lines()], names=2, sortable=False)]
    if trial.before is not None:
        said.append(element("p", _sentence(trial)))
        if trial.after.accuracy < trial.before.accuracy - LOSS:
            treated = fitted.has_shortcut_reader or trial.are_known
            said.append(element("p", TRADE if treated else NO_GAIN))
    notes = [f"Plain training is {plain}."]
    if trial.are_known:
        notes.append("Groups are those that were given, for each class.")
    elif trial.after.worst_group is not None:
        notes.append("Suspected groups are guessed from the features, by class and by what the shortcut says.")
    notes.append("The labels are taken as they are, wrong ones included.")
    said.append(element("p", " ".join(notes), class_="note"))
    return [*said, element("p", _other_figures(fitted), class_="note")]


def _other_figures(fitted: Fitted) -> str:
    """Why figures further down are others: other heads, and where there is a test split, other samples."""
    test = fitted.data.test
    which = "the same samples" if test is None else f"the {int((~test).sum())} training samples"
    if not isinstance(fitted.model, HeadModel):
        which = f"all {len(fitted.audit)} samples"
    return (
        f"Figures of the audit, from “Verdicts” on, are about {which} and come from plain heads of the audit, each asked "
        "about samples it has not seen: they say what a plain model would do, and differ from those above by some points."
    )


def _sentence(trial: Trial) -> str:
    changes = [(line.name, line.after.accuracy - line.before.accuracy) for line in trial.lines() if line.before]
    if all(abs(change) < 0.0005 for _, change in changes):
        return "No difference from plain training on these samples."
    first, *others = (f"{name} {100 * change:+.1f}" for name, change in changes)
    return ", ".join([f"{first} points", *(other[0].lower() + other[1:] for other in others)]) + "."


def _checks(fitted: Fitted, audited: Mapping[str, Any]) -> Markup:
    """What a person should look at before the model is used."""
    verdicts, trial = audited["verdicts"], fitted.trial
    pictures = "exhibits" in audited
    steps = []
    if answer_of(verdicts, "shortcut") != "no":
        where = "Suspects to look at" if pictures else "Samples tied to a wrong class"
        steps.append(f"Look at “{where}” below: do they share something that has nothing to do with their class?")
    if answer_of(verdicts, "label_noise") != "no" or fitted.audit.noise.num_issues:
        where = "Labels to check" if pictures else "Doubtful labels"
        tied = answer_of(verdicts, "shortcut") == "yes"
        caution = " Samples that a shortcut misleads stand there, too, and their labels are right." if tied else ""
        steps.append(f"Check the labels under “{where}” from the top. Correct wrong ones, and fit again.{caution}")
    if trial.after.worst_class.accuracy < trial.after.accuracy - 0.1:
        steps.append(f"The class {trial.after.worst_class.name} lies far behind: it needs more or clearer samples.")
    if fitted.has_shortcut_reader:
        steps.append(
            "In the file of predictions, look at rows with “yes” under disagree: there the prediction goes against what "
            "the shortcut points to. They are where this model differs from a plain one."
        )
    steps.append("Predict samples from another time, place or source than these, and check some by hand.")
    return element("ol", *(element("li", step) for step in steps), class_="steps")


def _use(fitted: Fitted, folder: str) -> list[Markup]:
    new = NEW[fitted.data.reads.kind]
    argument = {"image": '["photo.jpg"]', "text": '["a text"]', "features": "X"}[fitted.data.reads.kind]
    lines = [shlex.join(["icda", "predict", folder, new, "--out", "predictions.csv"])]
    python = [f"model = icda.load({folder!r})", f"model.predict({argument})"]
    return [element("pre", element("code", "\n".join(block)), class_="command") for block in (lines, python)]


def _cost(fitted: Fitted) -> list[tuple[str, object]]:
    reads = fitted.data.reads
    facts: list[tuple[str, object]] = [
        ("Samples", f"{len(fitted.audit):,}"),
        ("Features", f"{reads.width:,}" + (f", by {reads.encoder}" if reads.encoder else "")),
    ]
    names = {
        "read": "Reading and embedding",
        "audit": "Audit",
        "fit": "Fit",
        "train": "Training",
        "plain": "Plain training, to compare",
        "trial": "Trial on unseen samples",
    }
    facts += [(names[key], duration(seconds)) for key, seconds in fitted.seconds.items()]
    return facts
