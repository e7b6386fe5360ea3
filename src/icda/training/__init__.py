"""The loop, its configuration, checkpoints and seeds.

Names are imported when they are first asked for: the configuration alone, which `icda train --help` shows, needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from icda.training.checkpoint import CheckpointError
    from icda.training.config import TrainConfig, load_config
    from icda.training.entry import TrainingResult, train
    from icda.training.run import evaluate_folder
    from icda.training.trainer import DivergedError, Trainer

_HOMES = {
    "CheckpointError": "checkpoint",
    "DivergedError": "trainer",
    "TrainConfig": "config",
    "Trainer": "trainer",
    "TrainingResult": "entry",
    "evaluate_folder": "run",
    "load_config": "config",
    "train": "entry",
}

__all__ = ["CheckpointError", "DivergedError", "TrainConfig", "Trainer", "TrainingResult"]
__all__ += ["evaluate_folder", "load_config", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'icda.training' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"icda.training.{_HOMES[name]}"), name)
    return value
