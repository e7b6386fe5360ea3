"""The settings of a run, as one dataclass that the command line is made from."""

import contextlib
import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro
import yaml
from annotated_types import Interval

from icda import plugins
from icda.errors import InputError, MissingFileError
from icda.limits import LARGEST_SIDE
from icda.ranges import NotNegative, NotNegativeInt, Positive, PositiveInt, Seed, Share
from icda.results import RunResult
from icda.results.files import RESULT, write_atomically
from icda.settings import check, check_names, read_yaml

OWN_DATA_CLIP_NORM = 1.0
# Where groups are unknown, the rule that comes nearest to the one that knows them (docs/evidence/shortcuts.md, "Choosing
# the epoch without groups"). Else the last epoch: a run may have no validation split, and groups may be chosen by.
DEFAULT_SELECTION = {"known": "last", "unknown": "validation_worst_class"}


@dataclass(frozen=True)
class TrainConfig:
    """What to train, on what, and how."""

    task: str = "digits_lt"
    """Name of a task (`icda list tasks`)."""
    data: str | None = None
    """Your own data instead of a task: a folder of images (one sub-folder per class), a CSV file or an .npz of features."""
    labels: str | None = None
    """File of training labels that take the place of the task's own, such as labels that people gave: .txt, .csv, .npy,
    .npz or .pt, FILE:NAME where it holds several."""
    root: str | None = None
    """Where datasets lie; the environment variable ICDA_DATA, or ./data, if not given."""
    method: str = "icda"
    """Name of a method (`icda list methods`)."""
    options: Annotated[dict[str, Any], tyro.conf.Suppress] = field(default_factory=dict)
    """Options of the method; on the command line --set lambda0=0.25 beta=0."""
    model: str | None = None
    """Name of a model (`icda list models`), hf:PATH, timm:NAME or torchvision:NAME; the task's own choice if not given."""
    epochs: PositiveInt = 30
    """Passes over the training set."""
    batch_size: PositiveInt = 128
    """Samples in a step, over all processes."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """SGD with momentum, or Adam."""
    learning_rate: Positive = 0.1
    """Initial learning rate."""
    momentum: Share = 0.9
    """Momentum of SGD (Nesterov)."""
    weight_decay: NotNegative = 5e-4
    """L2 penalty on the weights."""
    schedule: Literal["step", "cosine", "constant"] = "step"
    """How the learning rate falls."""
    milestones: tuple[NotNegative, ...] = (0.6, 0.8)
    """Where the step schedule decays; numbers below 1 are shares of the epochs."""
    decay: Share = 0.1
    """What the step schedule multiplies by."""
    warmup_epochs: NotNegative = 0.0
    """Epochs over which the learning rate rises from zero."""
    clip_norm: Positive | Literal["auto"] | None = "auto"
    """Largest gradient norm; None leaves gradients alone. auto: 1 for your own data (--data, datasets), none for tasks."""
    attributes: Literal["known", "unknown"] = "known"
    """Whether training and selection may see group labels; "unknown" withholds them from both."""
    subset: Positive | None = None
    """Part of the task, for a quick look: a share below 1, or a number of training samples."""
    selection: str = ""
    """Rule that picks the checkpoint (`icda list selection`); none sees test data. If not given: last, and where attributes
    are unknown validation_worst_class."""
    seed: Seed = 0
    """Seed of initialisation, order and augmentation."""
    data_seed: Seed = 0
    """Seed of what the task chooses (subsets, noise, colours)."""
    precision: Literal["no", "bf16", "fp16"] = "no"
    """Mixed precision."""
    out: str = "runs/{task}/{method}/seed{seed}"
    """Folder for checkpoint, logs, result.json and report.html."""
    checkpoint_every: NotNegativeInt = 0
    """Iterations between checkpoints; 0 saves after each epoch."""
    tensorboard: bool = False
    """Write TensorBoard event files too."""
    image_size: Annotated[int, Interval(ge=1, le=LARGEST_SIDE)] = 32
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
    skip_unreadable: bool = False
    """Leave out images that cannot be read, instead of stopping."""
    allow_outside: bool = False
    """Trust a table, or a folder with links, that names images outside its own folder."""
    plugin: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = field(default_factory=plugins.given)
    """Python file or module that registers methods, losses, tasks ... of your own; may be given several times."""

    def __post_init__(self) -> None:
        check(vars(self), _kinds())
        if not self.selection:  # now, so that the rule is in the hash, and in the configuration that is written
            object.__setattr__(self, "selection", DEFAULT_SELECTION[self.attributes])

    @property
    def largest_gradient(self) -> float | None:
        """The norm at which gradients are clipped; None where they are not."""
        if self.clip_norm == "auto":
            return None if self.data is None else OWN_DATA_CLIP_NORM
        return None if self.clip_norm is None else float(self.clip_norm)

    def folder(self) -> Path:
        task = Path(self.data).stem if self.data else self.task
        if "\0" in f"{self.out}{task}{self.method}":
            raise InputError(f"out must be the name of a folder, got {self.out!r}.")
        try:
            return Path(self.out.format(task=task, method=self.method, seed=self.seed))
        except (KeyError, IndexError, ValueError) as error:
            raise InputError(
                f"out may hold {{task}}, {{method}} and {{seed}} and no other braces, got {self.out!r}."
            ) from error

    def as_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        if self.clip_norm == "auto":  # a run's files say what was done
            values["clip_norm"] = self.largest_gradient
        if not self.plugin:  # a run without one is written as it was before there were any
            del values["plugin"]
        return values

    def hash(self) -> str:
        """A short name for everything that shapes the numbers; where the files go does not."""
        shaping = {k: v for k, v in self.as_dict().items() if k not in NOT_SHAPING and (k, v) not in ADDED_LATER}
        return hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()[:12]


def describe_changes(earlier: Mapping[str, Any], config: TrainConfig) -> str:
    """Which shaping settings differ from those of an earlier run."""
    now = {name: value for name, value in config.as_dict().items() if name not in NOT_SHAPING}
    before = {**dict(ADDED_LATER), **earlier}  # a setting that the earlier version did not know had its default
    changes = [f"{name} {before.get(name)!r} -> {now[name]!r}" for name in now if before.get(name) != now[name]]
    return "; ".join(changes) or "of another version of icda"


NOT_SHAPING = ("out", "root", "tensorboard", "checkpoint_every", "allow_outside", "plugin")  # a plugin may be installed
# At these values a run is what it was before the settings existed.
ADDED_LATER = (("attributes", "known"), ("subset", None), ("skip_unreadable", False), ("labels", None))


def config_from_dict(values: Mapping[str, Any], origin: str = "configuration") -> TrainConfig:
    """A TrainConfig from plain values; an unknown key is refused with the nearest known one."""
    check_names(values, _kinds(), origin, "setting")
    try:
        return TrainConfig(**{name: _from_yaml(value, _kinds()[name]) for name, value in values.items()})
    except ValueError as error:
        raise InputError(f"{origin}: {error}") from error


@functools.cache
def _kinds() -> dict[str, Any]:
    return get_type_hints(TrainConfig, include_extras=True)


def _from_yaml(value: Any, kind: Any) -> Any:
    """What YAML has no notation for: tuples, and numbers such as 1e-3, which it takes for text."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, str) and "float" in str(kind):
        with contextlib.suppress(ValueError):
            return float(value)
    return value


def load_config(path: Path) -> TrainConfig:
    """Read a YAML file of settings, such as the config.yaml of an earlier run."""
    if not path.is_file():
        raise MissingFileError(f"no configuration file at {path}.")
    try:
        values = read_yaml(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} cannot be read as YAML: {error}") from error
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected settings as `name: value` lines, got {type(values).__name__}.")
    config = config_from_dict(values, str(path))
    plugins.check_given(config.plugin, str(path))
    return dataclasses.replace(config, plugin=plugins.given())


def save_config(config: TrainConfig, path: Path) -> None:
    """Write the settings as `load_config` reads them."""
    values = {**config.as_dict(), "clip_norm": config.clip_norm}  # what was asked for
    write_atomically(path, yaml.safe_dump(values, sort_keys=False).encode())


def finished_result(config: TrainConfig) -> RunResult | None:
    """The result in a cell's folder, if it was made with these very settings. Of a damaged one `train` says more."""
    path = config.folder() / RESULT
    if not path.is_file():
        return None
    try:
        result = RunResult.read(path)
    except InputError:
        return None
    return result if result.config_hash == config.hash() else None
