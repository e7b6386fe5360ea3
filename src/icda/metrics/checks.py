"""What `evaluate_predictions` asks of its arguments."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from icda.errors import InputError


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
