"""How far training has come, t/T, as a number or, in a compiled graph, as a tensor."""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
from torch import Tensor

from icda.errors import InputError, InputTypeError


def check_progress(progress: Any) -> Any:
    """t/T as it is given, a number or a tensor that holds one."""
    if isinstance(progress, Tensor):
        if progress.numel() != 1 or progress.is_complex() or progress.is_meta:
            raise InputError(f"progress is one number, t/T in [0, 1], got a tensor of {tuple(progress.shape)}.")
    elif isinstance(progress, bool) or not isinstance(progress, Real):
        raise InputTypeError(f"progress is a number, t/T in [0, 1], got {progress!r}.")
    if not torch.compiler.is_compiling() and not 0 <= float(progress) <= 1:
        raise InputError(f"progress is t/T in [0, 1], got {float(progress)}.")
    return progress


def traced_progress(progress: Any) -> Any:
    """In a compiled graph a tensor, so that a new value is no new graph; elsewhere as it is given."""
    if not torch.compiler.is_compiling():
        return progress
    return torch.ones((), dtype=torch.float64) * progress


def is_off(factor: Any) -> bool:
    """Whether a term with this factor is nothing; a compiled graph does not know, and computes it.

    >>> is_off(0.0), is_off(0.5)
    (True, False)
    """
    return not torch.compiler.is_compiling() and bool(factor == 0)
