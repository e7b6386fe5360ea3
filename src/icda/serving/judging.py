"""`icda eval MODEL --data NEW`: a model judged on all of somebody's labelled samples."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from icda.data.embedding.samples import Samples, texts_of
from icda.data.own.feature_files import open_table
from icda.data.own.table import natural_order
from icda.errors import InputError
from icda.functional.confusion import count_confusions
from icda.metrics import evaluate_predictions
from icda.metrics.figures import FEWEST
from icda.results import RunResult
from icda.serving.model import Model, load
from icda.serving.predictions import read_new
from icda.training.environment import describe_environment


def judge_data(
    folder: Path,
    data: str,
    split: str = "test",
    *,
    allow_outside: bool = False,
    skip_unreadable: bool = False,
    allow_hub: bool = False,
    group_column: str | None = None,
    say: Callable[[str], None] | None = None,
) -> RunResult:
    """Figures of all samples of `data`, or of its split of that name where it names splits itself.

    Groups are class x attribute, as in the fit: by `group_column`, else by the column that the fit was given. `say` is told
    where the data lack the latter.
    """
    model = load(folder, allow_hub=allow_hub)
    known = {str(name): number for number, name in enumerate(model.classes)}
    path = Path(data).expanduser()
    group = _group_column(path, model, group_column, say or (lambda _: None))
    columns = {"labels": model.reads.label, "groups": group, "splits": model.split_column}
    samples = _in_words(read_new(path, model.reads, **columns, allow_outside=allow_outside), model, path, str(folder))
    rows = np.array([row for row, name in enumerate(samples.split_names or ()) if name == split], dtype=int)
    is_part = 0 < len(rows) < len(samples)
    samples = samples.only(rows) if is_part else samples
    parts = [answers for _, answers in model.answers(samples, skip_unreadable)]
    kept = np.concatenate([one.kept for one in parts])
    logits = torch.from_numpy(np.concatenate([one.logits for one in parts])).float()
    if not len(logits):
        raise InputError(f"none of the {len(samples)} inputs can be read: nothing to judge.")
    targets = torch.tensor([known[label] for label in samples.labels[kept].tolist()])
    group_names, groups = _number(samples.groups, kept)
    sizes = [] if groups is None else torch.bincount(groups, minlength=len(group_names)).tolist()
    metrics = evaluate_predictions(
        logits,
        targets,
        groups=groups,
        num_groups=len(group_names),
        train_class_counts=model.class_counts,
        group_names=group_names or None,
    )
    if groups is not None:  # the lowest of the groups with samples enough to judge
        judged = [name for name, size in zip(group_names, sizes, strict=True) if size >= FEWEST]
        shares = [metrics["per_group_accuracy"][name] for name in judged]
        metrics["worst_group_accuracy"] = min((share for share in shares if share is not None), default=None)
    return RunResult(
        task=path.stem,
        **model.described(data),
        split=split if is_part else "all",
        metrics=metrics,
        class_names=list(known),
        class_counts=model.class_counts,
        group_names=group_names,
        group_samples=sizes,
        confusion=count_confusions(logits.argmax(1), targets, len(known)).tolist(),
        environment=describe_environment(),
    )


def _group_column(path: Path, model: Model, given: str | None, say: Callable[[str], None]) -> str | None:
    """The column of groups: the named one, which must be there, else that of the fit if the data have it."""
    remembered = model.reads.group
    if given is not None and path.is_dir():
        raise InputError(f"{path} is a folder, which has no column {given!r}: give a table of its images with one.")
    if given is not None or remembered is None:
        return given
    if path.is_dir() or (path.is_file() and path.suffix.lower() != ".npy" and remembered not in open_table(path).names):
        say(f"{path} has no {remembered!r}, by which the model was fitted: no groups are judged.")
        return None
    return remembered


def _in_words(samples: Samples, model: Model, path: Path, origin: str) -> Samples:
    """With labels as texts, which the model must know, and groups as class x attribute, all of them known."""
    named, classes = samples.with_class_names(), [str(name) for name in model.classes]
    labels, groups = np.array(texts_of(named.labels), dtype=object), named.crossed()[0]
    if set(labels) - set(classes):
        if named.class_names is not None:  # some numbers have no name
            codes, count = named.labels, len(named.class_names)
            row = int(((codes < 0) | (codes >= count)).argmax())
            raise InputError(
                f"{path}: the label of row {row} is {codes[row]}, expected 0 to {count - 1} for its {count} class_names: "
                "repair or drop such rows."
            )
        there = ", ".join(natural_order(labels))
        raise InputError(f"{origin} was trained on classes {', '.join(classes)}; the data have {there}.")
    if unknown := (groups or []).count(""):
        raise InputError(
            f"{path}: the group of {unknown} of {len(samples)} samples is not known: fill in or drop those rows."
        )
    return replace(samples, labels=labels, groups=None if groups is None else np.array(groups, dtype=object))


def _number(groups: np.ndarray | None, kept: np.ndarray) -> tuple[list[str], torch.Tensor | None]:
    if groups is None:
        return [], None
    names = list(natural_order(groups))
    return names, torch.tensor([names.index(name) for name in groups[kept]])
