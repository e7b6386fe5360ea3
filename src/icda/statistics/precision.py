"""Buffers that must not lose digits when a model is cast to half precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn


def keep_precision(module: nn.Module, apply: Callable[[], object], floors: Mapping[str, torch.dtype]) -> None:
    """Run `apply` (the cast or move of `module`), but let no buffer named in `floors` fall below its dtype.

    The values come from before the cast: widening them afterwards would not bring lost digits back.
    """
    before = {name: module._buffers[name] for name in floors}
    apply()
    for name, floor in floors.items():
        old, new = before[name], module._buffers[name]
        if old is None or new is None or torch.promote_types(new.dtype, floor) == new.dtype:
            continue
        module._buffers[name] = _moved(old, new, floor)


def _moved(old: Tensor, new: Tensor, floor: torch.dtype) -> Tensor:
    if old.is_meta:  # nothing to bring over: the module is only now given memory
        return new.to(floor)
    return old.to(new.device, floor)
