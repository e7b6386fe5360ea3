"""All figures of one split at once."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from icda.errors import InputError
from icda.metrics import figures
from icda.metrics.registry import Predictions, added_metrics

GROUP_METRICS = ("per_group_accuracy", "worst_group_accuracy", "average_group_accuracy", "train_weighted_accuracy")


def evaluate_predictions(
    logits: Tensor,
    targets: Tensor,
    *,
    groups: Tensor | None = None,
    num_groups: int = 0,
    train_class_counts: Sequence[int] | Tensor | None = None,
    train_group_counts: Sequence[int] | Tensor | None = None,
    group_names: Sequence[str] | None = None,
    memberships: Tensor | None = None,
    membership_names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Every figure we report of logits (N, C) and targets (N,), as plain numbers for JSON; accuracies lie in [0, 1].

    The same keys come every time; a figure that cannot be known is None, never another one in its place. Classes and groups
    that the split has no sample of are left out of means and worst ones. Where `memberships` (N, M) in overlapping groups
    are given, the accuracy per group, its worst and its mean are over those (WILDS' rule for CivilComments), and
    `train_weighted_accuracy` stays over the disjoint `groups`. Metrics that plugins registered come last.

    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
    >>> found = evaluate_predictions(logits, torch.tensor([0, 0, 0, 1]), groups=torch.tensor([0, 0, 1, 1]))
    >>> found["accuracy"], found["per_class_accuracy"], found["per_group_accuracy"], found["few_accuracy"]
    (0.75, [0.6666666666666666, 1.0], {'0': 1.0, '1': 0.5}, None)
    """
    logits = check_logits(logits)
    samples, num_classes = logits.shape
    targets = check_labels(targets, "targets", samples, num_classes)
    check_length(train_class_counts, "train_class_counts", num_classes, "class")
    predictions = logits.argmax(dim=1)
    correct = predictions.eq(targets)
    accuracies = figures.per_class_accuracy(figures.confusion_matrix(predictions, targets, num_classes))
    known = (groups, train_class_counts)
    seen = [None if values is None else torch.as_tensor(values).detach().cpu() for values in known]
    return {
        "accuracy": int(correct.sum()) / samples,
        "balanced_accuracy": figures.mean_known(accuracies),
        "per_class_accuracy": accuracies,
        "worst_class_accuracy": figures.worst_known(accuracies),
        **figures.band_accuracy(accuracies, train_class_counts),
        "macro_precision": figures.macro_precision(predictions, targets, num_classes),
        "calibration_error": figures.calibration_error(logits, targets),
        "nll": figures.negative_log_likelihood(logits, targets),
        **_group_metrics(correct, groups, num_groups, train_group_counts, group_names),
        **_membership_metrics(correct, memberships, membership_names),
        **added_metrics(Predictions(logits, targets, *seen)),
    }


def _group_metrics(
    correct: Tensor,
    groups: Tensor | None,
    num_groups: int,
    train_group_counts: Sequence[int] | Tensor | None,
    group_names: Sequence[str] | None,
) -> dict[str, Any]:
    if groups is None:
        return dict.fromkeys(GROUP_METRICS)
    num_groups = count_groups(groups, num_groups, group_names or None, train_group_counts)
    groups = check_labels(groups, "groups", len(correct), num_groups)
    check_length(train_group_counts, "train_group_counts", num_groups, "group")
    names = check_names(group_names, "group_names", num_groups, "group")
    accuracies = figures.per_group_accuracy(correct, groups, num_groups)
    return {
        **_over_groups(names, accuracies),
        "train_weighted_accuracy": figures.train_weighted_accuracy(accuracies, train_group_counts),
    }


def _membership_metrics(correct: Tensor, memberships: Tensor | None, names: Sequence[str] | None) -> dict[str, Any]:
    """What overlapping groups replace of the figures over disjoint ones; nothing where there are none."""
    if memberships is None:
        return {}
    memberships = check_memberships(memberships, len(correct))
    checked_names = check_names(names, "membership_names", memberships.shape[1], "column of memberships")
    return _over_groups(checked_names, figures.per_membership_accuracy(correct, memberships))


def _over_groups(names: Sequence[str], accuracies: Sequence[float | None]) -> dict[str, Any]:
    return {
        "per_group_accuracy": dict(zip(names, accuracies, strict=True)),
        "worst_group_accuracy": figures.worst_known(accuracies),
        "average_group_accuracy": figures.mean_known(accuracies),
    }


def expect(fits: bool, sentence: str) -> None:
    if not fits:
        raise InputError(f"evaluate_predictions expects {sentence}")


def check_logits(logits: Tensor) -> Tensor:
    """The logits as they are computed with: on the CPU, without gradient, at least float32."""
    shape = tuple(logits.shape)
    expect(
        len(shape) == 2 and shape[1] > 1 and shape[0] > 0,
        f"logits of shape (N, C) with samples and C >= 2, got {shape}: pass the scores of all classes, before argmax.",
    )
    expect(logits.is_floating_point(), f"floating point logits, got {logits.dtype}: pass scores.")
    bad = int((~logits.isfinite()).any(dim=1).sum())
    expect(bad == 0, f"finite logits, got NaN or infinity for {bad} of {shape[0]} samples: the model has diverged.")
    logits = logits.detach().cpu()
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def check_labels(labels: Tensor, what: str, samples: int, limit: int) -> Tensor:
    """Labels or group numbers, one per sample, each in 0..limit-1, on the CPU as int64."""
    shape = tuple(labels.shape)
    expect(shape == (samples,), f"{what} of shape ({samples},), one for each row of logits, got {shape}.")
    is_whole = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    expect(is_whole, f"integer {what}, got {labels.dtype}: use {what}.long().")
    low, high = int(labels.min()), int(labels.max())
    expect(low >= 0 and high < limit, f"{what} in 0..{limit - 1}, got {low if low < 0 else high}: number them from 0.")
    return labels.detach().cpu().long()


def check_memberships(memberships: Tensor, samples: int) -> Tensor:
    """Which overlapping groups (N, M) each sample is in, on the CPU as int64 zeros and ones."""
    shape = tuple(memberships.shape)
    expect(
        len(shape) == 2 and shape[0] == samples and shape[1] > 0,
        f"memberships of shape ({samples}, M), a column for each overlapping group, got {shape}.",
    )
    is_whole = not (memberships.is_floating_point() or memberships.is_complex())
    expect(is_whole, f"memberships that are true or false, got {memberships.dtype}: use memberships >= 0.5.")
    memberships = memberships.detach().cpu().long()
    low, high = int(memberships.min()), int(memberships.max())
    expect(low >= 0 and high <= 1, f"memberships of 0 and 1, got {low} to {high}: disjoint groups go in groups=.")
    return memberships


def check_names(names: Sequence[object] | None, what: str, wanted: int, unit: str) -> list[str]:
    """Distinct names, one per group; their numbers where there are none."""
    check_length(names or None, what, wanted, unit)
    distinct = [str(name) for name in (names or range(wanted))]
    expect(len(set(distinct)) == wanted, f"distinct {what}, got {', '.join(distinct)}.")
    return distinct


def check_length(values: Sequence[object] | Tensor | None, what: str, wanted: int, unit: str) -> None:
    """Names and counts come one per class or one per group."""
    if values is not None:
        expect(len(values) == wanted, f"{wanted} {what}, one per {unit}, got {len(values)}.")


def count_groups(groups: Tensor, num_groups: int, *per_group: Sequence[object] | Tensor | None) -> int:
    """The number of groups: as told, else as many as there are names or counts, else as many as are seen."""
    expect(num_groups >= 0, f"num_groups not to be negative, got {num_groups}.")
    known = [num_groups, *(len(values) for values in per_group if values is not None)]
    seen = int(groups.max()) + 1 if groups.numel() else 1
    return next((number for number in known if number), max(seen, 1))
