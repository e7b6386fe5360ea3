"""Checks on features and targets, shared by statistics, strengths and losses."""

from __future__ import annotations

import torch
from torch import Tensor

from icda.errors import InputError, InputTypeError


def check_features(features: Tensor, feature_dim: int, owner: str) -> None:
    if not features.is_floating_point():
        raise InputTypeError(f"{owner} expects floating-point features, got {features.dtype}.")
    if features.dim() != 2 or features.shape[1] != feature_dim:
        hint = ": flatten them before the loss" if features.dim() > 2 else ""
        raise InputError(f"{owner} expects features of shape (N, {feature_dim}), got {tuple(features.shape)}{hint}.")
    if features.shape[0] == 0:
        raise InputError(f"{owner} got an empty batch: features of shape {tuple(features.shape)}.")
    # A sum is finite only if every term is, and reads the tensor once; a huge finite sum is looked at again.
    if not torch.isfinite(features.detach().sum()) and not torch.isfinite(features).all():
        bad = (~torch.isfinite(features)).any(dim=1).nonzero().flatten().tolist()
        raise InputError(
            f"{owner} got NaN or infinite features in row {bad[0]} ({len(bad)} of {len(features)} rows). "
            "Nothing was updated; lower the learning rate or look at that input."
        )


def check_targets(targets: Tensor, num_samples: int, num_classes: int, owner: str) -> Tensor:
    """The labels as int64: smaller integers mean something else as indices, uint8 a mask."""
    if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
        raise InputTypeError(f"{owner} expects integer class labels, got {targets.dtype}: use targets.long().")
    if targets.shape != (num_samples,):
        raise InputError(f"{owner} expects targets of shape ({num_samples},), got {tuple(targets.shape)}.")
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= num_classes:
        wrong = low if low < 0 else high
        raise InputError(f"{owner} got label {wrong}, outside 0..{num_classes - 1} ({num_classes} classes).")
    return targets.long()


def check_weights(weights: Tensor, num_samples: int, owner: str) -> None:
    if weights.shape != (num_samples,):
        raise InputError(f"{owner} expects weights of shape ({num_samples},), got {tuple(weights.shape)}.")
    if not (torch.isfinite(weights) & (weights >= 0)).all():
        raise InputError(f"{owner} expects weights that are finite and not negative.")


def check_num_classes(num_classes: int, owner: str) -> None:
    if num_classes < 2:
        raise InputError(f"{owner} needs at least 2 classes, got num_classes={num_classes}.")
