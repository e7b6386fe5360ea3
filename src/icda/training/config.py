"""The settings of a run, as one dataclass that the command line is made from."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
import yaml

from icda.registry import nearest


@dataclass(frozen=True)
class TrainConfig:
    """What to train, on what, and how."""

    task: str = "digits_lt"
    """Name of a task (`icda list tasks`)."""
    data: str | None = None
    """Your own data instead of a task: a folder of images (one sub-folder a class) or a CSV file."""
    root: str | None = None
    """Where datasets lie; the environment variable ICDA_DATA, or ./data, if not given."""
    method: str = "icda"
    """Name of a method (`icda list methods`)."""
    options: Annotated[dict[str, Any], tyro.conf.Suppress] = field(default_factory=dict)
    """Options of the method; on the command line --set lambda0=0.25 beta=0."""
    model: str | None = None
    """Name of a model (`icda list models`), hf:PATH, timm:NAME or torchvision:NAME; the task's own choice if not given."""
    epochs: int = 30
    """Passes over the training set."""
    batch_size: int = 128
    """Samples in a step, over all processes."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """SGD with momentum, or Adam."""
    learning_rate: float = 0.1
    """Initial learning rate."""
    momentum: float = 0.9
    """Momentum of SGD (Nesterov)."""
    weight_decay: float = 5e-4
    """L2 penalty on the weights."""
    schedule: Literal["step", "cosine", "constant"] = "step"
    """How the learning rate falls."""
    milestones: tuple[float, ...] = (0.6, 0.8)
    """Where the step schedule decays; numbers below 1 are shares of the epochs."""
    decay: float = 0.1
    """What the step schedule multiplies by."""
    warmup_epochs: float = 0.0
    """Epochs over which the learning rate rises from zero."""
    clip_norm: float | None = None
    """Largest gradient norm; None leaves gradients alone."""
    selection: str = "last"
    """Rule that picks the checkpoint (`icda list selection`); none sees test data."""
    seed: int = 0
    """Seed of initialisation, order and augmentation."""
    data_seed: int = 0
    """Seed of what the task chooses (subsets, noise, colours)."""
    precision: Literal["no", "bf16", "fp16"] = "no"
    """Mixed precision."""
    out: str = "runs/{task}/{method}/seed{seed}"
    """Folder for checkpoint, logs, result.json and report.html."""
    checkpoint_every: int = 0
    """Iterations between checkpoints; 0 saves after each epoch."""
    tensorboard: bool = False
    """Write TensorBoard event files too."""
    image_size: int = 32
    """Side to which images of a folder or CSV are resized."""
    image_column: str | None = None
    """CSV column with image paths; guessed from common names if not given."""
    text_column: str | None = None
    """CSV column with texts."""
    label_column: str | None = None
    """CSV column with class labels."""
    group_column: str | None = None
    """CSV column with groups."""
    split_column: str | None = None
    """CSV column with train, validation or test."""

    def __post_init__(self) -> None:
        positive = {"epochs": self.epochs, "batch_size": self.batch_size, "learning_rate": self.learning_rate}
        for name, value in positive.items():
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}.")
        not_negative = {
            "weight_decay": self.weight_decay,
            "warmup_epochs": self.warmup_epochs,
            "checkpoint_every": self.checkpoint_every,
        }
        for name, value in not_negative.items():
            if value < 0:
                raise ValueError(f"{name} must not be negative, got {value}.")

    def folder(self) -> Path:
        task = Path(self.data).stem if self.data else self.task
        return Path(self.out.format(task=task, method=self.method, seed=self.seed))

    def as_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))

    def hash(self) -> str:
        """A short name for everything that shapes the numbers; where the files go does not."""
        shaping = {k: v for k, v in self.as_dict().items() if k not in NOT_SHAPING}
        return hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()[:12]


NOT_SHAPING = ("out", "root", "tensorboard", "checkpoint_every")


def config_from_dict(values: dict[str, Any], origin: str = "configuration") -> TrainConfig:
    """A TrainConfig from plain values; an unknown key is refused with the nearest known one.

    >>> config_from_dict({"epochs": 3}).epochs
    3
    >>> config_from_dict({"epoch": 3})
    Traceback (most recent call last):
    ValueError: configuration: unknown setting 'epoch': did you mean 'epochs'?
    """
    fields = {f.name: f for f in dataclasses.fields(TrainConfig)}
    for key in values:
        if key not in fields:
            guess = nearest(key, fields)
            raise ValueError(f"{origin}: unknown setting {key!r}{f': did you mean {guess!r}?' if guess else '.'}")
    values = dict(values)
    if "milestones" in values:
        values["milestones"] = tuple(values["milestones"])
    return TrainConfig(**values)


def load_config(path: Path) -> TrainConfig:
    """Read a YAML file of settings, such as the config.yaml of an earlier run."""
    if not path.is_file():
        raise FileNotFoundError(f"no configuration file at {path}.")
    values = yaml.safe_load(path.read_text())
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ValueError(f"{path}: expected settings as `name: value` lines, got {type(values).__name__}.")
    return config_from_dict(values, str(path))


def save_config(config: TrainConfig, path: Path) -> None:
    path.write_text(yaml.safe_dump(config.as_dict(), sort_keys=False))
