"""Checks on features and targets, shared by statistics, strengths and losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from icda.errors import InputError, InputTypeError

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Below this the squares that statistics add up stay far within float32; beyond, a caller must look at the result.
ORDINARY = 1e8


def check_tensor(value: Any, name: str, owner: str) -> None:
    """A dense tensor that holds values."""
    if not isinstance(value, Tensor):
        raise InputTypeError(
            f"{owner} expects {name} as a torch.Tensor, got {type(value).__name__}: use torch.as_tensor({name})."
        )
    if value.layout != torch.strided or value.is_nested or value.is_quantized:
        raise InputTypeError(
            f"{owner} expects {name} as a plain dense tensor, got one that is sparse, nested or quantised."
        )
    if value.is_meta:
        raise InputError(f"{owner} got {name} on the meta device, which holds no values.")


def check_float(value: Any, name: str, owner: str) -> None:
    check_tensor(value, name, owner)
    if value.dtype not in FLOATS:
        raise InputTypeError(f"{owner} expects floating-point {name}, got {value.dtype}: use {name}.float().")


def check_device(value: Tensor, name: str, device: torch.device, owner: str) -> None:
    """All tensors of a call lie on the device of the features."""
    if value.device != device:
        raise InputError(f"{owner} got features on {device} and {name} on {value.device}: move them to one device.")


def check_features(features: Tensor, feature_dim: int, owner: str) -> bool:
    """Shape, type and values; returns whether all values are of ordinary size, so that squares cannot overflow."""
    check_feature_shape(features, feature_dim, owner)
    largest = largest_magnitude(features).item()
    check_finite_rows(features, largest, owner)
    return largest < ORDINARY


def check_feature_shape(features: Tensor, feature_dim: int, owner: str) -> None:
    check_float(features, "features", owner)
    if features.dim() != 2 or features.shape[1] != feature_dim:
        hint = ": flatten them before the loss" if features.dim() > 2 else ""
        raise InputError(f"{owner} expects features of shape (N, {feature_dim}), got {tuple(features.shape)}{hint}.")
    if features.shape[0] == 0:
        raise InputError(f"{owner} got an empty batch: features of shape {tuple(features.shape)}.")


def largest_magnitude(values: Tensor) -> Tensor:
    """max |v|, as a tensor: NaN where there is one. Reads the values once and copies nothing."""
    low, high = torch.aminmax(values.detach())
    return torch.maximum(-low, high)


def check_finite_rows(features: Tensor, largest: float, owner: str) -> None:
    if largest < float("inf"):
        return
    bad = (~torch.isfinite(features)).any(dim=1).nonzero().flatten().tolist()
    raise InputError(
        f"{owner} got NaN or infinite features in row {bad[0]} ({len(bad)} of {len(features)} rows). "
        "Nothing was updated; lower the learning rate or look at that input."
    )


def check_targets(
    targets: Tensor, num_samples: int, num_classes: int, owner: str, ignore_index: int | None = None
) -> Tensor:
    """The labels as int64: smaller integers mean something else as indices, uint8 a mask."""
    check_label_shape(targets, num_samples, owner)
    targets = targets.long()
    low, high = torch.stack(torch.aminmax(targets)).tolist()
    if low >= 0 and high < num_classes:
        return targets
    wrong = [label for label in targets.unique().tolist() if label != ignore_index and not 0 <= label < num_classes]
    if wrong:
        label = wrong[0] if wrong[0] < 0 else wrong[-1]
        raise InputError(f"{owner} got label {label}, outside 0..{num_classes - 1} ({num_classes} classes).")
    return targets


def check_label_shape(targets: Tensor, num_samples: int, owner: str) -> None:
    """All that can be said of labels without looking at their values."""
    check_tensor(targets, "targets", owner)
    if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
        raise InputTypeError(f"{owner} expects integer class labels, got {targets.dtype}: use targets.long().")
    if targets.shape != (num_samples,):
        raise InputError(f"{owner} expects targets of shape ({num_samples},), got {tuple(targets.shape)}.")


def check_weights(weights: Tensor, num_samples: int, owner: str) -> None:
    check_tensor(weights, "weights", owner)
    if weights.is_complex():
        raise InputTypeError(f"{owner} expects weights that are real numbers, got {weights.dtype}.")
    if weights.shape != (num_samples,):
        raise InputError(f"{owner} expects weights of shape ({num_samples},), got {tuple(weights.shape)}.")
    if not (torch.isfinite(weights) & (weights >= 0)).all():
        raise InputError(f"{owner} expects weights that are finite and not negative.")


def check_num_classes(num_classes: int, owner: str) -> None:
    check_whole_number(num_classes, "num_classes", owner)
    if num_classes < 2:
        raise InputError(f"{owner} needs at least 2 classes, got num_classes={num_classes}.")


def check_feature_dim(feature_dim: int, owner: str) -> None:
    check_whole_number(feature_dim, "feature_dim", owner)
    if feature_dim < 1:
        raise InputError(f"{owner} needs at least 1 feature, got feature_dim={feature_dim}.")


def check_whole_number(value: Any, name: str, owner: str) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InputTypeError(f"{owner} expects {name} as a whole number, got {value!r}.")
