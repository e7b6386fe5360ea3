"""All figures of one split at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from icda.metrics import checks
from icda.metrics.calibration import calibration_error, negative_log_likelihood
from icda.metrics.per_class import (
    SHOT_THRESHOLDS,
    band_accuracy,
    confusion_matrix,
    macro_precision,
    mean_known,
    per_class_accuracy,
    worst_known,
)
from icda.metrics.per_group import per_group_accuracy, per_membership_accuracy, train_weighted_accuracy
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
    class_names: Sequence[str] | None = None,
    shot_thresholds: tuple[int, int] = SHOT_THRESHOLDS,
    memberships: Tensor | None = None,
    membership_names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Every figure we report of logits (N, C) and targets (N,), as plain numbers for JSON; accuracies lie in [0, 1].

    The same keys come every time. A figure that cannot be known is None, never another one in its place: without groups
    there is no `worst_group_accuracy`, without `train_class_counts` no `few_accuracy`. `balanced_accuracy`, the worst
    class and the worst group leave out classes and groups that the split has no sample of. `class_names` are only
    checked: `per_class_accuracy` is a list in the order of the classes. Where `memberships` (N, M) in overlapping groups
    are given, the accuracy per group, its worst and its mean are over those (WILDS' rule for CivilComments);
    `train_weighted_accuracy` stays over the disjoint `groups`, whose shares of the training set sum to one. Metrics that
    plugins registered come last, under their own names.

    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
    >>> found = evaluate_predictions(logits, torch.tensor([0, 0, 0, 1]), groups=torch.tensor([0, 0, 1, 1]))
    >>> found["accuracy"], found["per_class_accuracy"], found["per_group_accuracy"], found["few_accuracy"]
    (0.75, [0.6666666666666666, 1.0], {'0': 1.0, '1': 0.5}, None)
    """
    logits = checks.check_logits(logits)
    samples, num_classes = logits.shape
    targets = checks.check_labels(targets, "targets", samples, num_classes)
    checks.check_length(train_class_counts, "train_class_counts", num_classes, "class")
    checks.check_length(class_names, "class_names", num_classes, "class")
    few, many = shot_thresholds
    checks.expect(0 <= few <= many, f"shot_thresholds in rising order, such as (20, 100), got {shot_thresholds}.")
    correct = logits.argmax(dim=1).eq(targets)
    return {
        **_class_metrics(logits, targets, train_class_counts, shot_thresholds),
        "calibration_error": calibration_error(logits, targets),
        "nll": negative_log_likelihood(logits, targets),
        **_group_metrics(correct, groups, num_groups, train_group_counts, group_names),
        **_membership_metrics(correct, memberships, membership_names),
        **added_metrics(Predictions(logits, targets, *_on_cpu(groups, train_class_counts))),
    }


def _on_cpu(*labels: Sequence[int] | Tensor | None) -> list[Tensor | None]:
    """Groups and counts as metrics from outside see them; both are checked by then."""
    return [None if values is None else torch.as_tensor(values).detach().cpu() for values in labels]


def _class_metrics(
    logits: Tensor, targets: Tensor, train_class_counts: Sequence[int] | Tensor | None, shot_thresholds: tuple[int, int]
) -> dict[str, Any]:
    predictions, num_classes = logits.argmax(dim=1), logits.shape[1]
    accuracies = per_class_accuracy(confusion_matrix(predictions, targets, num_classes))
    return {
        "accuracy": int(predictions.eq(targets).sum()) / len(targets),
        "balanced_accuracy": mean_known(accuracies),
        "per_class_accuracy": accuracies,
        "worst_class_accuracy": worst_known(accuracies),
        **band_accuracy(accuracies, train_class_counts, shot_thresholds),
        "macro_precision": macro_precision(predictions, targets, num_classes),
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
    num_groups = checks.count_groups(groups, num_groups, group_names or None, train_group_counts)
    groups = checks.check_labels(groups, "groups", len(correct), num_groups)
    checks.check_length(train_group_counts, "train_group_counts", num_groups, "group")
    names = checks.check_names(group_names, "group_names", num_groups, "group")
    accuracies = per_group_accuracy(correct, groups, num_groups)
    return {
        **_over_groups(names, accuracies),
        "train_weighted_accuracy": train_weighted_accuracy(accuracies, train_group_counts),
    }


def _membership_metrics(correct: Tensor, memberships: Tensor | None, names: Sequence[str] | None) -> dict[str, Any]:
    """What overlapping groups replace of the figures over disjoint ones; nothing where there are none."""
    if memberships is None:
        return {}
    memberships = checks.check_memberships(memberships, len(correct))
    checked_names = checks.check_names(names, "membership_names", memberships.shape[1], "column of memberships")
    return _over_groups(checked_names, per_membership_accuracy(correct, memberships))


def _over_groups(names: Sequence[str], accuracies: Sequence[float | None]) -> dict[str, Any]:
    return {
        "per_group_accuracy": dict(zip(names, accuracies, strict=True)),
        "worst_group_accuracy": worst_known(accuracies),
        "average_group_accuracy": mean_known(accuracies),
    }
