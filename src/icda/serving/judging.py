"""`icda eval MODEL --data NEW`: a model judged on all of somebody's labelled samples."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icda.data.embedding import Samples, read_samples
from icda.data.embedding.samples import Columns
from icda.data.missing import is_missing
from icda.data.own.feature_files import LabelledFeatures, column_names, read_feature_file
from icda.data.own.table import LABEL, crossed_groups, natural_order, read_table, split_names
from icda.errors import InputError
from icda.functional.confusion import count_confusions
from icda.metrics import evaluate_predictions
from icda.metrics.figures import FEWEST
from icda.results import RunResult
from icda.serving.fit_data import FILES
from icda.serving.model import Model, check_features, load
from icda.training.environment import describe_environment

ADVICE = "Without labels there is nothing to judge: `icda predict` takes images in any folders."


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
    samples, part = _part(_read(path, model, allow_outside, str(folder), group), split)
    logits, kept = _answers(model, samples, skip_unreadable)
    targets = torch.tensor([known[label] for label, here in zip(samples.labels or (), kept, strict=True) if here])
    group_names, groups = _groups(samples.groups, kept)
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
        split=part,
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
    if path.is_dir() or (path.is_file() and remembered not in column_names(path)):
        say(f"{path} has no {remembered!r}, by which the model was fitted: no groups are judged.")
        return None
    return remembered


def _read(path: Path, model: Model, allow_outside: bool, origin: str, group: str | None) -> Samples:
    if path.is_file() and (path.suffix.lower() in FILES or model.reads.kind == "features"):
        return _read_features(path, model, origin, group)
    reads, columns = model.reads, None
    if path.is_file():
        table = read_table(path)  # other classes are the commoner mistake: name them before other columns
        if (named := table.find("label", reads.label, LABEL)) is not None:
            _checked(table.names(named), model, origin)
        inputs: dict[str, Any] = {reads.kind: reads.column}
        columns = Columns(labels=reads.label, groups=group, splits=model.split_column, **inputs)
    samples = read_samples(path, columns, allow_outside=allow_outside, advice=ADVICE)
    assert samples.labels is not None
    groups = None if samples.groups is None else _known_groups(samples.groups, samples.source or Path("data"))
    return replace(samples, labels=_checked(samples.labels, model, origin), groups=groups)


def _read_features(path: Path, model: Model, origin: str, group: str | None) -> Samples:
    if path.suffix.lower() == ".npy":
        raise InputError(f"{path} holds features without labels: put both into one .npz, under the names X and y.")
    reads = model.reads
    found = read_feature_file(path, reads.asked(labels=reads.label, groups=group))
    reads.check_made_alike(found.embedding, path)
    splits = None if found.splits is None else split_names(found.splits, str(path))
    labels, groups = _checked(_class_labels(found, model, path), model, origin), None
    if found.groups is not None:
        groups = crossed_groups(labels, _known_groups(found.groups.tolist(), path))[0]
    return Samples("features", np.asarray(found.features), range(len(labels)), labels, groups, splits)


def _part(samples: Samples, split: str) -> tuple[Samples, str]:
    """The split of that name, where there is one, else all samples; and which it is."""
    rows = [row for row, name in enumerate(samples.splits or ()) if name == split]
    return (samples, "all") if len(rows) in (0, len(samples)) else (samples.only(rows), split)


def _known_groups(values: Sequence[Any], path: Path) -> list[str]:
    missing = sum(is_missing(value) or value == "" for value in values)
    if missing:
        raise InputError(
            f"{path}: the group of {missing} of {len(values)} samples is not known: fill in or drop those rows."
        )
    return [str(value) for value in values]


def _class_labels(found: LabelledFeatures, model: Model, path: Path) -> list[str]:
    """Labels as texts: numbers that the file's class_names explain by those names."""
    labels, names = np.asarray(found.labels), found.class_names
    plain = [str(label) for label in labels.tolist()]
    if names is None:
        return plain
    strange = (labels < 0) | (labels >= len(names))
    if not strange.any():
        return [str(name) for name in names[labels]]
    if set(plain) <= {str(name) for name in model.classes}:  # fitted to such numbers as they are
        return plain
    row = int(strange.argmax())
    raise InputError(
        f"{path}: the label of row {row} is {labels[row]}, expected 0 to {len(names) - 1} for its {len(names)} "
        "class_names: repair or drop such rows."
    )


def _checked(labels: Sequence[str], model: Model, origin: str) -> Sequence[str]:
    classes = [str(name) for name in model.classes]
    if set(labels) - set(classes):
        there = ", ".join(natural_order(labels))
        raise InputError(f"{origin} was trained on classes {', '.join(classes)}; the data have {there}.")
    return labels


def _answers(model: Model, samples: Samples, skip_unreadable: bool) -> tuple[torch.Tensor, np.ndarray]:
    inputs = check_features(samples.inputs, model.reads) if isinstance(samples.inputs, np.ndarray) else samples
    parts = [answers for _, answers in model.answers(inputs, skip_unreadable)]
    logits = np.concatenate([part.logits for part in parts])
    if not len(logits):
        raise InputError(f"none of the {len(samples)} inputs can be read: nothing to judge.")
    return torch.from_numpy(logits).float(), np.concatenate([part.kept for part in parts])


def _groups(values: Sequence[str] | None, kept: np.ndarray) -> tuple[list[str], torch.Tensor | None]:
    if values is None:
        return [], None
    names = list(natural_order(values))
    numbers = {name: number for number, name in enumerate(names)}
    return names, torch.tensor([numbers[name] for name, here in zip(values, kept, strict=True) if here])
