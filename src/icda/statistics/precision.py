"""Buffers that must not lose digits when a model is cast to half precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import torch
from torch import nn


class KeepsPrecision(nn.Module):
    """A module whose floating-point buffers never fall below float64, or below what `least_precision` says by name.

    Half precision cannot count past 2048. Values come from before a cast: widening them afterwards would not bring lost
    digits back.
    """

    least_precision: ClassVar[dict[str, torch.dtype]] = {}

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        before = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        super()._apply(fn, recurse)
        for name, old in before.items():
            new, floor = self._buffers[name], self.least_precision.get(name, torch.float64)
            if new is None or not new.is_floating_point() or torch.promote_types(new.dtype, floor) == new.dtype:
                continue
            self._buffers[name] = new.to(floor) if old.is_meta else old.to(new.device, floor)
        return self
