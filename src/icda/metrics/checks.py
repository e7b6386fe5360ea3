"""What `evaluate_predictions` asks of its arguments."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from icda.errors import InputError


def check_logits(logits: Tensor) -> Tensor:
    """The logits as they are computed with: on the CPU, without gradient, at least float32."""
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise InputError(
            f"evaluate_predictions expects logits of shape (N, C) with C >= 2, got {tuple(logits.shape)}: "
            "pass the scores of all classes, before argmax."
        )
    if logits.shape[0] == 0:
        raise InputError("evaluate_predictions got no samples: an empty split has no accuracy.")
    if not logits.is_floating_point():
        raise InputError(f"evaluate_predictions expects floating point logits, got {logits.dtype}: pass scores.")
    if not logits.isfinite().all():
        bad = int((~logits.isfinite()).any(dim=1).sum())
        raise InputError(
            f"evaluate_predictions got NaN or infinite logits for {bad} of {logits.shape[0]} samples: "
            "the model has diverged. Lower the learning rate or clip the gradient."
        )
    logits = logits.detach().cpu()
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def check_labels(labels: Tensor, what: str, samples: int, limit: int) -> Tensor:
    """Labels or group numbers, one per sample, each in 0..limit-1, on the CPU as int64."""
    if tuple(labels.shape) != (samples,):
        raise InputError(
            f"evaluate_predictions expects {what} of shape ({samples},), one for each row of logits, "
            f"got {tuple(labels.shape)}."
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(f"evaluate_predictions expects integer {what}, got {labels.dtype}: use {what}.long().")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= limit:
        raise InputError(
            f"evaluate_predictions expects {what} in 0..{limit - 1}, got {low if low < 0 else high}: "
            f"drop those samples or number the {what} from 0."
        )
    return labels.detach().cpu().long()


def check_memberships(memberships: Tensor, samples: int) -> Tensor:
    """Which overlapping groups (N, M) each sample is in, on the CPU as int64 zeros and ones."""
    if memberships.ndim != 2 or memberships.shape[0] != samples or memberships.shape[1] == 0:
        raise InputError(
            f"evaluate_predictions expects memberships of shape ({samples}, M), a row for each row of logits and a column "
            f"for each overlapping group, got {tuple(memberships.shape)}."
        )
    if memberships.is_floating_point() or memberships.is_complex():
        raise InputError(
            f"evaluate_predictions expects memberships that are true or false, got {memberships.dtype}: "
            "use memberships >= 0.5."
        )
    memberships = memberships.detach().cpu().long()
    if memberships.min() < 0 or memberships.max() > 1:
        raise InputError(
            f"evaluate_predictions expects memberships of 0 and 1, got {int(memberships.min())} to "
            f"{int(memberships.max())}: numbers of disjoint groups go in groups=."
        )
    return memberships


def check_names(names: Sequence[object] | None, what: str, wanted: int, unit: str) -> list[str]:
    """Distinct names, one per group; their numbers where there are none."""
    check_length(names or None, what, wanted, unit)
    distinct = [str(name) for name in (names or range(wanted))]
    if len(set(distinct)) < wanted:
        raise InputError(f"evaluate_predictions expects distinct {what}, got {', '.join(distinct)}.")
    return distinct


def check_length(values: Sequence[object] | Tensor | None, what: str, wanted: int, unit: str) -> None:
    """Names and counts come one per class or one per group."""
    if values is not None and len(values) != wanted:
        raise InputError(f"evaluate_predictions expects {wanted} {what}, one per {unit}, got {len(values)}.")


def check_thresholds(thresholds: tuple[int, int]) -> None:
    """The few/medium and medium/many borders."""
    if not 0 <= thresholds[0] <= thresholds[1]:
        raise InputError(
            f"shot_thresholds are the smallest and largest count of a medium class, got {thresholds}: "
            "give them in rising order, such as (20, 100)."
        )


def count_groups(groups: Tensor, num_groups: int, *per_group: Sequence[object] | Tensor | None) -> int:
    """The number of groups: as told, else as many as there are names or counts, else as many as are seen."""
    if num_groups < 0:
        raise InputError(f"num_groups must not be negative, got {num_groups}.")
    if num_groups:
        return num_groups
    for values in per_group:
        if values is not None:
            return len(values)
    return max(int(groups.max()) + 1, 1) if groups.numel() else 1
