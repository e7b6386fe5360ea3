"""The loop, its configuration, checkpoints and seeds."""

from icda.training.checkpoint import CheckpointError
from icda.training.config import TrainConfig, load_config
from icda.training.run import evaluate_folder, train
from icda.training.trainer import DivergedError, Trainer

__all__ = ["CheckpointError", "DivergedError", "TrainConfig", "Trainer", "evaluate_folder", "load_config", "train"]
