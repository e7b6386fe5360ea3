"""The page of `icda fit`: the result at a glance; then what was found, done and brought, what to check, how to use it."""

import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from icda.auditing.page import Show, collect_exhibits, settings_part
from icda.report.charts import bar
from icda.report.formatting import duration, percent
from icda.report.markup import NOTHING, Markup, Part, definitions, element, framed, join, section, table
from icda.report.sections.audit import anchored_parts, vocabulary_of
from icda.report.sections.samples import sample
from icda.report.sections.verdicts import answer_of, found_sentences, glossary
from icda.serving.contrast import Strips, columns_in_words, contrasts, in_words, show_inputs
from icda.serving.fitting import Fitted
from icda.serving.headline import found_in_short, headline, new_data, next_step, warning
from icda.serving.trial import JudgedPart

SHOWN = 50  # rows of each ranking
CONTRASTS, TILES, TEXTS = 2, 6, 3  # classes on the first screen, pictures and texts of each lot
CUT = 160  # characters of a text there
GROUPS = 30  # in the table of groups
LOSS = 0.01  # of accuracy, from which the page says what it is given for
NO_GAIN = (
    "Plain training gets more of these samples right. Nothing was done about a shortcut, so that a plain model (--method "
    "ce) may serve you better, unless rare classes matter to you as much as frequent ones."
)
TRADE = (
    "Plain training is better on samples like these, most of which the shortcut helps; this model is better where the "
    "shortcut is absent or misleads. If your new samples come from the same source as these and always will, a plain model "
    "(--method ce) may serve you better."
)
FOUND = ("verdicts", "suspects", "costs", "matrix", "tied", "sizes")  # parts of the audit, folded
CHECKED = ("check", "labels")
SPENT = {  # what took time
    "read": "Reading and embedding",
    "audit": "Audit",
    "fit": "Fit",
    "train": "Training",
    "plain": "Plain training, to compare",
    "trial": "Trial on unseen samples",
}


def render_fit_page(fitted: Fitted, folder: str, data: str) -> str:
    """One self-contained page."""
    audited, samples = fitted.audit.as_dict(SHOWN), fitted.data.training
    if samples.inputs is not None:
        audited["exhibits"] = collect_exhibits(fitted.audit, show_inputs(samples))
    # What was done and what came of it stands there once; the audit's own advice may have been another, and what it
    # expects was estimated with its own heads.
    audited["treatment"] = {}
    folded = {place: (title, part) for place, title, part in anchored_parts(audited, 3, ("short", "advice"))}
    parts: list[Part] = [
        ("result", "The result", section("The result", 2, *_first_screen(fitted, folder))),
        ("found", "What was found", section("What was found", 2, *_found(fitted, audited), *_folds(folded, FOUND))),
        ("brought", "What was done and brought", section("What was done and brought", 2, *_brought(fitted))),
        ("check", "What to check", section("What to check", 2, _checks(fitted, audited), *_folds(folded, CHECKED))),
        ("use", "How to use it", section("How to use it", 2, *_use(fitted, folder, audited))),
    ]
    title = f"A classifier of {len(fitted.model.classes)} classes from {data}"
    return framed(title, "icda fit", parts, vocabulary_of(audited))


def _first_screen(fitted: Fitted, folder: str) -> list[Markup]:
    said = warning(fitted)
    warned = [element("p", element("strong", said), class_="lede warned")] if said else []
    words, command = next_step(fitted, folder)
    next_part = element("p", words), element("pre", element("code", command), class_="command")
    found = element("p", found_in_short(fitted), class_="lede")
    shown = [_contrast(fitted, one) for one in contrasts(fitted)[:CONTRASTS]]
    return [*warned, found, element("p", headline(fitted)), *filter(None, shown), _bars(fitted), *next_part]


def _contrast(fitted: Fitted, one: Strips) -> Markup:
    """The usual samples of a class and the suspected ones, side by side."""
    data = fitted.data.training
    words = in_words(data, one.suspected, one.usual)
    if data.inputs is None:
        return _table_contrast(fitted, one)
    show, lots = show_inputs(data), []
    usual, suspected = _lots(fitted)
    for title, name, rows in ((usual, one.usual_name, one.usual), (suspected, one.suspected_name, one.suspected)):
        heading = element("p", f"{title.capitalize()}: {name} ({len(rows)})", class_="small-title")
        lots.append(element("div", heading, _tiles(data.names, rows, show, data.kind)))
    said = f"Compared with the {usual} samples, the {suspected} ones are: {words}."
    if data.kind == "text":
        said = f"Words that are typical of the {suspected} ones: {words}."
    differ = element("p", said, class_="note") if words else NOTHING
    return join([element("div", *lots, class_="contrast"), differ])


def _tiles(names: list[str], rows: np.ndarray, show: Show, kind: str) -> Markup:
    chosen = np.random.default_rng(0).permutation(rows)[: TILES if kind == "image" else TEXTS]
    drawn = []
    for row in chosen:
        entry = dict(show(int(row)))
        if len(entry.get("text", "")) > CUT:
            entry["text"] = f"{entry['text'][:CUT].rpartition(' ')[0]} ..."
        drawn.append(sample({**entry, "index": names[row]}, names[row]))
    return element("div", *drawn, class_="tiles" if kind == "image" else "tiles texts")


def _table_contrast(fitted: Fitted, one: Strips) -> Markup:
    """The columns in which the suspected rows differ most."""
    columns = columns_in_words(fitted.data.training, one.suspected, one.usual)
    if not columns:
        return NOTHING
    usual, suspected = _lots(fitted)
    caption = (
        f"How {suspected} rows ({one.suspected_name}: {len(one.suspected)}) differ from {usual} ones ({one.usual_name}: "
        f"{len(one.usual)})"
    )
    return table(caption, ["Column", f"In the {suspected}, beside the {usual}"], columns, names=2, sortable=False)


def _lots(fitted: Fitted) -> tuple[str, str]:
    """What the two lots of a class are called. Groups that were given are no suspicion."""
    return ("most frequent", "worst-classified") if fitted.trial.are_known else ("usual", "suspected")


def _bars(fitted: Fitted) -> Markup:
    """The worst group before and after; without groups the worst class."""
    trial = fitted.trial
    line = trial.lines()[-1]
    ways = (("Plain training", line.before), ("This model", line.after))
    words = "Right in the worst group" if trial.after.worst_group is not None else "Right in the worst class"
    judged = ((name, part, f"{part.name}, {part.samples} samples ") for name, part in ways if part is not None)
    rows = [_bar(name, part.accuracy, part.interval, about) for name, part, about in judged]
    if any(not part.is_judged for part in trial.after.groups):
        # The worst of the large groups may be one that the shortcut serves: its share would hide the small ones.
        words = "Right with every group counted alike, for some are too small to judge by themselves"
        outcomes = (("Plain training", trial.before), ("This model", trial.after))
        shares = [(name, one.alike) for name, one in outcomes if one is not None and one.alike is not None]
        rows = [_bar(name, share, (low, high), "") for name, (share, low, high) in shares]
    line_means = "the thin line is where the true share lies, 95 times of 100"
    if trial.after.groups and (fitted.groups_are_read or not trial.are_known):
        line_means += ", as far as the groups are right, which were " + ("read" if trial.are_known else "guessed")
    title = element("p", f"{words}; {line_means}", class_="small-title")
    return element("div", title, *rows, class_="before-after")


def _bar(name: str, share: float, interval: tuple[float, float], about: str) -> Markup:
    low, high = interval
    words = element("small", f"{about}({100 * low:.0f} to {100 * high:.0f} %)")
    figure = element("span", element("strong", percent(share)), " ", words)
    return element("div", element("span", name), bar(share, interval), figure)


def _found(fitted: Fitted, audited: Mapping[str, Any]) -> list[Markup]:
    said = [element("p", " ".join(found_sentences(audited)))]
    groups, labels = fitted.data.answered
    if groups or labels:
        corrected = f" {labels} labels were corrected." if labels else ""
        said.append(element("p", element("strong", "Asked: "), f"you named the group of {groups} samples.{corrected}"))
    if fitted.data.skipped:
        said.append(element("p", f"{len(fitted.data.skipped)} unreadable files were left out.", class_="note"))
    said += [element("p", note, class_="note") for note in fitted.data.notes]
    # Other heads and, where there is a test split, other samples.
    which = "the same samples" if fitted.data.test is None else f"the {len(fitted.audit)} training samples"
    words = (
        f"Figures of the audit, to be opened below, are about {which} and come from plain heads of the audit, each asked "
        "about samples it has not seen: they say what a plain model would do."
    )
    return [*said, element("p", words, class_="note")]


def _folds(parts: Mapping[str, tuple[str, Markup]], places: tuple[str, ...]) -> list[Markup]:
    """Parts of the audit, each to be opened."""
    known = [(place, *parts[place]) for place in places if place in parts]
    return [
        element("details", element("summary", title.removesuffix(" and treatment")), part, id=f"audit-{place}")
        for place, title, part in known
    ]


def _brought(fitted: Fitted) -> list[Markup]:
    trial = fitted.trial
    rows = [[line.name, line.which, line.after.samples, *line.shares] for line in trial.lines()]
    header = ["", "Which", "Samples", "Plain training", "This model"]
    caption = f"Shares that are right; judged: {trial.held_out}"
    said = [
        element("p", element("strong", "Done: "), fitted.done),
        element("div", table(caption, header, rows, names=2, sortable=False), id="figures"),
    ]
    if trial.before is not None and trial.after.accuracy < trial.before.accuracy - LOSS:
        treated = fitted.has_shortcut_reader or trial.are_known
        said.append(element("p", TRADE if treated else NO_GAIN))
    said.append(_group_table(fitted))
    notes = [f"Plain training is {fitted.plain}."]
    if fitted.data.answered[0]:
        notes.append("Groups are those you named, read off the other samples; for each class.")
    elif trial.are_known:
        notes.append("Groups are those that were given, for each class.")
    elif trial.after.groups:
        notes.append("Suspected groups are guessed from the features, by class and by what the shortcut says.")
    notes.append("The labels are taken as they are, wrong ones included.")
    return [*said, element("p", " ".join(notes), class_="note")]


def _group_table(fitted: Fitted) -> Markup:
    """Every group with its size; those too small to judge are shown as such."""
    lines = fitted.trial.group_lines()
    if not lines:
        return NOTHING

    def shown(part: JudgedPart | None) -> str:
        if part is None:
            return ""
        low, high = part.interval
        words = f"{100 * low:.0f} to {100 * high:.0f}" if part.is_judged else "too few to judge"
        return f"{percent(part.accuracy)} ({words})"

    rows = [[line.after.name, line.after.samples, shown(line.before), shown(line.after)] for line in lines[:GROUPS]]
    more = f"; the worst {GROUPS} of {len(lines)}" if len(lines) > GROUPS else ""
    kind = "group" if fitted.trial.are_known else "suspected group"
    caption = f"Every {kind}, that is class and attribute, with its 95 % interval{more}"
    return element("div", table(caption, ["Group", "Samples", "Plain training", "This model"], rows), id="groups")


def _checks(fitted: Fitted, audited: Mapping[str, Any]) -> Markup:
    """What a person should look at before the model is used."""
    verdicts, trial = audited["verdicts"], fitted.trial
    pictures = "exhibits" in audited
    steps = []
    if answer_of(verdicts, "shortcut") != "no":
        where = "Suspects to look at" if pictures else "Samples tied to a wrong class"
        steps.append(f"Look at “{where}” above: do they share something that has nothing to do with their class?")
    if answer_of(verdicts, "label_noise") != "no" or fitted.audit.noise.num_issues:
        where = "Labels to check" if pictures else "Doubtful labels"
        tied = answer_of(verdicts, "shortcut") == "yes"
        caution = " Samples that a shortcut misleads stand there, too, and their labels are right." if tied else ""
        steps.append(f"Check the labels under “{where}” from the top. Correct wrong ones, and fit again.{caution}")
    if trial.after.worst_class.accuracy < trial.after.accuracy - 0.1:
        steps.append(f"The class {trial.after.worst_class.name} lies far behind: it needs more or clearer samples.")
    small = [part.name for part in trial.after.groups if not part.is_judged]
    if small:
        steps.append(
            f"Too small to judge: {', '.join(small[:SHOWN])}. Collect more of these before you trust the model."
        )
    if fitted.has_shortcut_reader:
        steps.append(
            "In the file of predictions, look at rows with “yes” under disagree: there the prediction goes against what "
            "the shortcut points to. They are where this model differs from a plain one."
        )
    steps.append("Predict samples from another time, place or source than these, and check some by hand.")
    return element("ol", *(element("li", step) for step in steps), class_="steps")


def _use(fitted: Fitted, folder: str, audited: Mapping[str, Any]) -> list[Markup]:
    kind = fitted.data.reads.kind
    argument = {"image": '["photo.jpg"]', "text": '["a text"]', "features": "X"}[kind]
    if kind == "features" and fitted.data.suffix in (".csv", ".parquet"):
        argument = f"pandas.read_{fitted.data.suffix[1:]}({new_data(fitted)!r})"
    lines = [shlex.join(["icda", "predict", folder, new_data(fitted), "--out", "predictions.csv"])]
    python = [f"model = icda.load({folder!r})", f"model.predict({argument})"]
    blocks = [element("pre", element("code", "\n".join(block)), class_="command") for block in (lines, python)]
    folds = [
        ("cost", "What it cost", definitions(_cost(fitted), "facts")),
        ("words", "Words on this page", glossary(audited, 3)),
        *settings_part(audited),
    ]
    return [*blocks, *(element("details", element("summary", name), part, id=place) for place, name, part in folds)]


def _cost(fitted: Fitted) -> list[tuple[str, object]]:
    reads = fitted.data.reads
    facts: list[tuple[str, object]] = [
        ("Samples", f"{len(fitted.audit):,}"),
        ("Features", f"{reads.width:,}" + (f", by {reads.encoder}" if reads.encoder else "")),
    ]
    return facts + [(SPENT[key], duration(seconds)) for key, seconds in fitted.seconds.items()]
