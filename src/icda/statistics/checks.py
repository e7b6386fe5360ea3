"""Checks shared by statistics and losses: kinds and shapes first, then all values in one read from the device."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from icda.errors import InputError, InputTypeError

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_tensor(value: Any, name: str, owner: str, device: torch.device | None = None) -> None:
    """A dense tensor that holds values, on `device` if that is given."""
    if not isinstance(value, Tensor):
        raise InputTypeError(
            f"{owner} expects {name} as a torch.Tensor, got {type(value).__name__}: use torch.as_tensor({name})."
        )
    if value.layout != torch.strided or value.is_nested or value.is_quantized:
        raise InputTypeError(f"{owner} expects {name} as a plain dense tensor, not sparse, nested or quantised.")
    if value.is_meta:
        raise InputError(f"{owner} got {name} on the meta device, which holds no values.")
    if device is not None and value.device != device:
        raise InputError(f"{owner} got features on {device} and {name} on {value.device}: move them to one device.")


def check_float(
    value: Any, name: str, owner: str, device: torch.device | None = None, shape: tuple[int, ...] | None = None
) -> None:
    check_tensor(value, name, owner, device)
    if value.dtype not in FLOATS:
        raise InputTypeError(f"{owner} expects floating-point {name}, got {value.dtype}: use {name}.float().")
    if shape is not None and value.shape != shape:
        raise InputError(f"{owner} expects {name} of shape {shape}, got {tuple(value.shape)}.")


def check_features(features: Any, feature_dim: int, owner: str, device: torch.device | None = None) -> None:
    check_float(features, "features", owner, device)
    if features.dim() != 2 or features.shape[1] != feature_dim:
        hint = ": flatten them before the loss" if features.dim() > 2 else ""
        raise InputError(f"{owner} expects features of shape (N, {feature_dim}), got {tuple(features.shape)}{hint}.")
    if len(features) == 0:
        raise InputError(f"{owner} got an empty batch: features of shape {tuple(features.shape)}.")


def check_labels(values: Any, name: str, num_samples: int, owner: str, device: torch.device) -> Tensor:
    """Labels or attributes as int64: smaller integers mean something else as indices, uint8 a mask."""
    check_tensor(values, name, owner, device)
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        wanted = "integer class labels" if name == "targets" else f"integer {name}"
        raise InputTypeError(
            f"{owner} expects {wanted}, got {values.dtype}: it classifies. Labels stored like that become integers by "
            f"{name}.long()."
        )
    if values.shape != (num_samples,):
        raise InputError(f"{owner} expects {name} of shape ({num_samples},), got {tuple(values.shape)}.")
    return values.long()


def check_within(low: float, high: float, number: int, owner: str, what: str, why: str) -> None:
    """Refuse numbers of which some are not in 0..number - 1."""
    if not 0 <= low <= high < number:
        raise InputError(f"{owner} got {what} {low if low < 0 else high:.0f}, outside 0..{number - 1} ({why}).")


def read_once(*figures: Tensor) -> list[float]:
    """Scalars as numbers: one read, because each makes a device's queue stop.

    >>> read_once(torch.tensor(-1), torch.tensor(2.5))
    [-1.0, 2.5]
    """
    return torch.stack([value.detach().double() for value in figures]).tolist()


def magnitude(values: Tensor) -> Tensor:
    """max |v|, as a tensor: NaN where there is one. Reads the values once and copies nothing."""
    low, high = torch.aminmax(values.detach())
    return torch.maximum(-low, high)


def most_allowed(dtype: torch.dtype) -> float:
    """The largest feature whose squares a sum of millions can hold: 3e15 in float32."""
    return torch.finfo(torch.promote_types(dtype, torch.float32)).max ** 0.4


def check_magnitude(largest: float, features: Tensor | None, owner: str, dtype: torch.dtype) -> None:
    """Refuse NaN, infinity, and what statistics of `dtype` cannot add up."""
    if largest < most_allowed(dtype):
        return
    if math.isfinite(largest):
        raise InputError(
            f"{owner} got features up to {largest:.3g}, whose squares overflow {dtype}: scale the features. Nothing was "
            "updated."
        )
    where = ""
    if features is not None:
        bad = (~torch.isfinite(features)).any(dim=1).nonzero().flatten().tolist()
        where = f" in row {bad[0]} ({len(bad)} of {len(features)} rows)"
    raise InputError(
        f"{owner} got NaN or infinite features{where}. Nothing was updated; lower the learning rate or look at that input."
    )


def check_number(
    value: Any, name: str, owner: str, low: float = -math.inf, high: float = math.inf, *, whole: bool = False
) -> None:
    """A finite number, or a `whole` one, in [low, high].

    >>> check_number(1.5, "momentum", "SGD", 0, 1)
    Traceback (most recent call last):
    icda.errors.InputError: SGD expects momentum in [0, 1], got 1.5.
    """
    kinds = hasattr(value, "__index__") if whole else hasattr(value, "__float__")
    if isinstance(value, bool | str | Tensor) or not kinds:
        raise InputTypeError(f"{owner} expects {name} as a {'whole ' if whole else ''}number, got {value!r}.")
    if not (math.isfinite(value) and low <= value <= high):
        inside = f"in [{low:g}, {high:g}]" if math.isfinite(high) else f"finite and at least {low:g}"
        raise InputError(f"{owner} expects {name} {inside if math.isfinite(low) else 'finite'}, got {value}.")


def check_sizes(num_classes: Any, feature_dim: Any, owner: str) -> None:
    for name, value, least in (("num_classes", num_classes, 2), ("feature_dim", feature_dim, 1)):
        check_number(value, name, owner, whole=True)
        if value < least:
            what = "2 classes" if least == 2 else "1 feature"
            raise InputError(f"{owner} needs at least {what}, got {name}={value}.")


def check_flags(owner: object, *names: str) -> None:
    """Settings of an object that must be True or False."""
    for name in names:
        value = getattr(owner, name)
        if not isinstance(value, bool):
            raise InputTypeError(f"{type(owner).__name__} expects {name} as True or False, got {value!r}.")
