"""What losses are made of: the terms of their formulas, each with its own tests."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

_MOVED = ("mean_term", "off_target", "variance_term")  # when this was a module


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = "icda.losses.terms.augmentation"
    warnings.warn(f"{__name__}.{name} is now {new}.{name}.", DeprecationWarning, stacklevel=2)
    return getattr(importlib.import_module(new), name)
