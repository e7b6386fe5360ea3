"""`icda eval MODEL --data NEW`: a model judged on all of somebody's labelled samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icda.data.embedding import Samples, read_samples
from icda.data.embedding.samples import Columns
from icda.data.missing import is_missing
from icda.data.own.feature_files import LabelledFeatures, column_names, read_feature_file
from icda.data.own.table import LABEL, crossed_groups, natural_order, read_table
from icda.errors import InputError
from icda.functional.confusion import count_confusions
from icda.methods import resolve_method
from icda.metrics import evaluate_predictions
from icda.metrics.figures import FEWEST
from icda.results import RunResult
from icda.serving.fit_data import split_names
from icda.serving.head import HeadModel
from icda.serving.loading import load
from icda.serving.model import CHUNK, Model, check_features
from icda.serving.network import NetworkModel
from icda.serving.reads import Reads
from icda.training.environment import describe_environment

ADVICE = "Without labels there is nothing to judge: `icda predict` takes images in any folders."
SUFFIXES = (".npz", ".npy", ".parquet")


@dataclass(frozen=True)
class Labelled:
    """Samples or features with labels, and groups where the data have them; `split` says which part of the data it is."""

    labels: Sequence[str]
    split: str
    samples: Samples | None = None
    features: np.ndarray | None = None
    groups: Sequence[str] | None = None


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
    labelled = _read(path, model, split, allow_outside, str(folder), group)
    logits, kept = _answers(model, labelled, skip_unreadable)
    targets = torch.tensor([known[label] for label, here in zip(labelled.labels, kept, strict=True) if here])
    group_names, groups = _groups(labelled, kept)
    counts = _class_counts(model)
    metrics = evaluate_predictions(
        logits,
        targets,
        groups=groups,
        num_groups=len(group_names),
        train_class_counts=counts,
        group_names=group_names or None,
    )
    if groups is not None:
        metrics["worst_group_accuracy"] = _worst_judged(metrics["per_group_accuracy"], groups, group_names)
    sizes = None if groups is None else torch.bincount(groups, minlength=len(group_names)).tolist()
    return replace(
        _described(model, data),
        split=labelled.split,
        metrics=metrics,
        class_names=list(known),
        class_counts=counts,
        group_names=group_names,
        group_samples=sizes or [],
        confusion=count_confusions(logits.argmax(1), targets, len(known)).tolist(),
    )


def _group_column(path: Path, model: Model, given: str | None, say: Callable[[str], None]) -> str | None:
    """The column of groups: the named one, which must be there, else that of the fit if the data have it."""
    remembered = _columns(model)[1]
    if given is not None and path.is_dir():
        raise InputError(f"{path} is a folder, which has no column {given!r}: give a table of its images with one.")
    if given is not None or remembered is None:
        return given
    if path.is_dir() or (path.is_file() and remembered not in column_names(path)):
        say(f"{path} has no {remembered!r}, by which the model was fitted: no groups are judged.")
        return None
    return remembered


def _worst_judged(accuracies: Mapping[str, float | None], groups: torch.Tensor, names: Sequence[str]) -> float | None:
    """The lowest of the groups with samples enough to judge."""
    sizes = torch.bincount(groups, minlength=len(names)).tolist()
    judged = [accuracies[name] for name, size in zip(names, sizes, strict=True) if size >= FEWEST]
    return min((share for share in judged if share is not None), default=None)


def _read(path: Path, model: Model, split: str, allow_outside: bool, origin: str, group: str | None) -> Labelled:
    column, _, marked = _columns(model)
    if path.is_file() and (path.suffix.lower() in SUFFIXES or model.reads.kind == "features"):
        return _read_features(path, model, split, origin, group)
    if path.is_file():  # other classes are the commoner mistake: name them before other columns
        table = read_table(path)
        named = table.find("label", column, LABEL)
        if named is not None:
            _checked(table.names(named), model, origin)
    inputs: dict[str, Any] = {model.reads.kind: model.reads.column}
    columns = Columns(labels=column, groups=group, splits=marked, **inputs) if path.is_file() else None
    samples = read_samples(path, columns, allow_outside=allow_outside, advice=ADVICE)
    assert samples.labels is not None
    _checked(samples.labels, model, origin)
    return _of_split(samples, split)


def _read_features(path: Path, model: Model, split: str, origin: str, group: str | None) -> Labelled:
    if path.suffix.lower() == ".npy":
        raise InputError(f"{path} holds features without labels: put both into one .npz, under the names X and y.")
    column, _, _ = _columns(model)
    wanted = Columns(labels=column, groups=group, fitted=model.reads.columns, array=model.reads.array)
    wanted = replace(wanted, plan=model.reads.table, fitted=None if model.reads.table else model.reads.columns)
    found = read_feature_file(path, wanted)
    model.reads.check_made_alike(found.embedding, path)
    rows = np.ones(len(found.labels), dtype=bool)
    if found.splits is not None:
        named = np.array(split_names(found.splits, str(path))) == split
        rows = named if named.any() else rows
    labels = _checked(_class_labels(found, model, path), model, origin)
    chosen = [label for label, here in zip(labels, rows, strict=True) if here]
    features = check_features(_own_columns(found, model.reads, path)[rows], model.reads)
    groups = None
    if found.groups is not None:
        crossed = crossed_groups(labels, _known_groups(found.groups.tolist(), path))[0]
        groups = [name for name, here in zip(crossed, rows, strict=True) if here]
    return Labelled(chosen, "all" if rows.all() else split, features=features, groups=groups)


def _known_groups(values: Sequence[Any], path: Path) -> list[str]:
    missing = sum(is_missing(value) or value == "" for value in values)
    if missing:
        raise InputError(
            f"{path}: the group of {missing} of {len(values)} samples is not known: fill in or drop those rows."
        )
    return [str(value) for value in values]


def _own_columns(found: LabelledFeatures, reads: Reads, path: Path) -> np.ndarray:
    """The features in the order of the fit."""
    features, wanted = np.asarray(found.features), reads.columns
    if found.columns is None or wanted is None or features.ndim != 2 or len(found.columns) != features.shape[1]:
        return features
    places = {name: place for place, name in enumerate(found.columns)}
    missing = [name for name in wanted if name not in places]
    if missing:
        raise InputError(f"{path} lacks the column {missing[0]!r} of numbers, which the model was fitted to.")
    return features[:, [places[name] for name in wanted]]


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


def _of_split(samples: Samples, split: str) -> Labelled:
    """The part of that name, where there is one; else all samples."""
    assert samples.labels is not None
    rows = range(len(samples))
    if samples.splits is not None and split in samples.splits:
        rows = [row for row in rows if samples.splits[row] == split]  # type: ignore[assignment]
    inputs: Any = [samples.inputs[row] for row in rows]
    ids: Any = [samples.ids[row] for row in rows]
    chosen = replace(samples, inputs=inputs, ids=ids)
    groups = None
    if samples.groups is not None:
        known = _known_groups(samples.groups, samples.source or Path("data"))
        groups = [known[row] for row in rows]
    named = split if len(rows) < len(samples) else "all"
    return Labelled([samples.labels[row] for row in rows], named, chosen, groups=groups)


def _checked(labels: Sequence[str], model: Model, origin: str) -> Sequence[str]:
    classes = [str(name) for name in model.classes]
    if set(labels) - set(classes):
        there = ", ".join(natural_order(labels))
        raise InputError(f"{origin} was trained on classes {', '.join(classes)}; the data have {there}.")
    return labels


def _answers(model: Model, labelled: Labelled, skip_unreadable: bool) -> tuple[torch.Tensor, np.ndarray]:
    if labelled.features is not None:
        answers = model.answer_features(labelled.features)
        return torch.from_numpy(answers.logits).float(), answers.kept
    samples = labelled.samples
    assert samples is not None
    chunks = [range(first, min(first + CHUNK, len(samples))) for first in range(0, len(samples), CHUNK)]
    parts = [model.answer(samples, rows, skip_unreadable) for rows in chunks]
    logits = np.concatenate([part.logits for part in parts])
    if not len(logits):
        raise InputError(f"none of the {len(samples)} inputs can be read: nothing to judge.")
    return torch.from_numpy(logits).float(), np.concatenate([part.kept for part in parts])


def _groups(labelled: Labelled, kept: np.ndarray) -> tuple[list[str], torch.Tensor | None]:
    if labelled.groups is None:
        return [], None
    names = list(natural_order(labelled.groups))
    numbers = {name: number for number, name in enumerate(names)}
    here = [numbers[name] for name, readable in zip(labelled.groups, kept, strict=True) if readable]
    return names, torch.tensor(here)


def _columns(model: Model) -> tuple[str | None, str | None, str | None]:
    if not isinstance(model, NetworkModel):
        label = model.reads.label
        is_file = label is not None and label.lower().endswith(".npy")  # an earlier icda kept the path of the fit
        return None if is_file else label, model.reads.group, None
    return model.config.label_column, model.config.group_column, model.config.split_column


def _class_counts(model: Model) -> list[int] | None:
    """Training samples of each class, where the model says."""
    if isinstance(model, NetworkModel):
        return model.class_counts
    known: Any = model.facts.get("class_counts") if isinstance(model, HeadModel) else None
    names = [str(name) for name in model.classes]
    if not isinstance(known, dict) or not all(isinstance(known.get(name), int) for name in names):
        return None
    return [known[name] for name in names]


def _described(model: Model, data: str) -> RunResult:
    task, environment = Path(data).stem, describe_environment()
    if not isinstance(model, NetworkModel):
        method = str(model.facts.get("method", "head")) if isinstance(model, HeadModel) else "head"
        return RunResult(task=task, method=method, model=model.reads.encoder or "linear", environment=environment)
    config = replace(model.config, data=data)
    return RunResult(
        task=task,
        method=resolve_method(config.method),
        model=config.model,
        seed=config.seed,
        selection=config.selection,
        config=config.as_dict(),
        config_hash=config.hash(),
        environment=environment,
    )
