"""`icda fit`: audit, fit the head that the audit recommends, and see what it brought."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icda._version import __version__
from icda.auditing import Audit, audit
from icda.auditing.inputs import standardise
from icda.auditing.plan import plan_by_audit
from icda.auditing.treatment import Treatment
from icda.data.embedding.samples import Samples
from icda.data.missing import is_missing
from icda.data.own.table import crossed_groups
from icda.errors import ExistingFileError, InputError
from icda.heads.blocks import BlockRows
from icda.results.claims import OWNER, claimed, settle
from icda.results.files import write_page
from icda.serving.fit_data import EMBEDDED
from icda.serving.folder import PAGE
from icda.serving.head import HeadModel
from icda.serving.head_fit import AUTO, PLAIN, check_method, done_in_words, fit_rows
from icda.serving.model import Model
from icda.serving.trial import Answer, Trial, cross_validate, judge

Say = Callable[[str], None]


@dataclass(frozen=True)
class Fitted:
    """A model, and all that its page tells: what was found, done and brought, and how long it took."""

    model: Model
    audit: Audit
    trial: Trial
    method: str
    done: str  # what was done, in sentences
    data: Samples
    seconds: dict[str, float]
    treatment: dict[str, Any] | None = None  # what was done to the fit; None where the user named the method
    C: float | None = None  # inverse weight decay of a head on standardised features
    plain: str = "a head with cross entropy on the same features"
    has_shortcut_reader: bool = False
    groups: list[str] | None = None  # class x attribute of each training sample, given or guessed

    @property
    def groups_are_read(self) -> bool:
        """Whether the groups of some training samples were not given, but read off their features."""
        given = self.data.training.groups
        return given is not None and any(is_missing(value) for value in given)

    @property
    def unseen(self) -> float | None:
        """Of the training samples, the share that plain models get right which had not seen them."""
        ties = self.audit.ties
        return None if ties is None else float((ties.predicted == ties.label).mean())

    def facts(self) -> dict[str, Any]:
        """What the model folder keeps of it."""
        return {
            "icda": __version__,
            "method": self.method,
            "done": self.done,
            "found": self.audit.summary,
            "treatment": self.treatment,
            "C": self.C,
            "trial": asdict(self.trial),
            "samples": len(self.audit),
            "class_counts": dict(zip(self.audit.class_names, self.audit.imbalance.counts, strict=True)),
            "groups": self.data.reads.group,
            "audit": self.audit.settings,  # its heads, which are others than this one
        }


def fit_model(data: Samples, method: str = AUTO, seed: int = 0, say: Say | None = None) -> Fitted:
    """Fit to all samples but those of a test split; without one, what it brought is judged by cross-fitting."""
    method = check_method(method)
    say = say or (lambda _: None)
    train, started = data.training, time.perf_counter()
    say(f"Auditing {len(train)} samples ...")
    found = audit(train.features, train.labels, sample_names=train.names, seed=seed)
    audited = time.perf_counter()
    say("Fitting the head ...")
    rows = memory_rows(train.features, train.labels, train.groups, seed)
    head = fit_rows(rows, method, found.assessment)
    done = time.perf_counter()
    say("Judging it on samples that it has not seen ...")
    model = HeadModel(head.classes, head.coef, head.intercept, data.reads, head.shortcut)
    groups, are_known = train_groups(train, found, head.treatment)
    trial = replace(_trial(data, method, model, groups, head.treatment, seed), are_known=are_known)
    spent = {"audit": audited - started, "fit": done - audited, "trial": time.perf_counter() - done}
    treated = None if head.treatment is None else head.treatment.as_dict()
    fitted = Fitted(model, found, trial, method, done_in_words(method, head), data, spent, treated, head.C)
    fitted = replace(fitted, has_shortcut_reader=head.shortcut is not None, groups=groups)
    return replace(fitted, model=replace(model, facts=fitted.facts()))


def memory_rows(X: np.ndarray, y: np.ndarray, groups: np.ndarray | None, seed: int) -> BlockRows:
    """Samples in memory, with their groups as far as they are known."""
    rows = BlockRows.of_arrays(X, y, seed=seed)
    return rows if groups is None else rows.with_groups(groups)


def check_out(folder: Path, overwrite: bool, allowed: Collection[str] = ()) -> None:
    """Refuse a folder with content, unless it is to be overwritten or holds no more than an interrupted fit leaves."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out is {folder}, which is a file: expected a folder.")
    if not folder.is_dir():
        return
    with claimed(folder, wait=False):
        settle(folder)
        kept = (EMBEDDED, f"{EMBEDDED}.part", OWNER, *allowed)
        others = [entry.name for entry in folder.iterdir() if entry.name not in kept]
        if not overwrite and any(not name.endswith(".part") or not name.startswith(".") for name in others):
            raise ExistingFileError(
                f"{folder} is not empty: choose another --out, or --overwrite what icda wrote there."
            )


def write_fitted(fitted: Fitted, folder: Path, page: str) -> None:
    """Into a folder that will take the place of an earlier one (`renewed`)."""
    fitted.audit.to_csv(folder / "audit.csv")
    fitted.audit.to_json(folder / "audit.json")
    write_page(folder / PAGE, page)
    if isinstance(fitted.model, HeadModel):  # a network has its checkpoint there
        fitted.model.write(folder)


def points_in_words(labels: Iterable[object], towards: np.ndarray, names: Sequence[object] | np.ndarray) -> list[str]:
    """Class of every sample and the class that the shortcut points to."""
    return [f"{label}, shortcut points to {names[k]}" for label, k in zip(labels, towards, strict=True)]


def groups_of(labels: np.ndarray, given: np.ndarray | None, treatment: Treatment | None) -> list[str] | None:
    """Class and group of every sample: given or, where some are not known, as the treatment read them; None without."""
    if given is None:
        return None
    if any(is_missing(group) for group in given.tolist()):
        if treatment is None or treatment.attributes is None or treatment.values is None:
            return None
        given = np.array(treatment.values, dtype=object)[treatment.attributes.numpy()]
    return crossed_groups([str(label) for label in labels.tolist()], [str(group) for group in given.tolist()])[0]


def train_groups(train: Samples, found: Audit, treatment: Treatment | None) -> tuple[list[str] | None, bool]:
    """Class and group of every training sample, and whether the groups were given.

    Else they are suspected: by what the shortcut says of a sample or by the audit's tie; None where no shortcut is seen.
    """
    groups = groups_of(train.labels, train.groups, treatment)
    if groups is not None:
        return groups, True
    if treatment is None or treatment.name in ("group_prior", "group_weights"):  # the audit's own, said of all rows
        features, targets = torch.from_numpy(standardise(train.features)), torch.from_numpy(found.in_memory()[0].label)
        rows = BlockRows.of_memory(features, targets, len(found.class_names), seed=int(found.settings["seed"]))
        treatment = plan_by_audit(rows, found.assessment).noted(rows).treatment
    names, ties = found.class_names, found.in_memory()[0]
    labels = [names[y] for y in ties.label]
    if treatment.attributes is not None:
        return points_in_words(labels, treatment.attributes.numpy(), names), False
    if found.verdicts["shortcut"].answer == "no":
        return None, False  # the tied samples are those that heads get wrong, and no group
    return [f"{label}, {'tied' if part else 'rest'}" for label, part in zip(labels, ties.suspected, strict=True)], False


def _trial(
    data: Samples, method: str, model: HeadModel, groups: list[str] | None, treatment: Treatment | None, seed: int
) -> Trial:
    train = data.training
    chosen: list[str] = []  # by the audits of parts of the samples

    def way(name: str) -> Answer:
        def answer(known: np.ndarray, labels: np.ndarray, new: np.ndarray, given: np.ndarray | None) -> np.ndarray:
            head = fit_rows(memory_rows(known, labels, given, seed), name)
            chosen.extend([] if head.treatment is None else [head.treatment.name])
            return HeadModel(head.classes, head.coef, head.intercept, data.reads).predict(new)

        return answer

    if data.test is None:
        trial = cross_validate(way(PLAIN), way(method), train.features, train.labels, groups, seed, train.groups)
        if train.groups is not None or not chosen or treatment is None:
            return trial
        same = f"; there the same treatment was chosen {chosen.count(treatment.name)} of {len(chosen)} times"
        return replace(trial, held_out=trial.held_out + same)
    test = data.only(np.flatnonzero(data.test))
    new, labels = test.features, test.labels
    towards, named = model.answer_features(new).points_to, groups_of(labels, test.groups, None)
    if named is None and towards is not None:
        named = points_in_words(labels, towards, model.classes)
    before = judge(way(PLAIN)(train.features, train.labels, new, None), labels, named)
    words = f"the {len(labels)} samples of the test split, which were used for nothing else"
    return Trial(before, judge(model.predict(new), labels, named), len(labels), words)
