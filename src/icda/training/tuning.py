"""Hyper-parameter search with Optuna on validation data; test data are never evaluated."""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from icda import plugins
from icda.errors import InputError, OperationError
from icda.extras import require
from icda.methods.create import method_class, option_names
from icda.metrics import METRICS
from icda.settings import check_names, read_yaml
from icda.training import DivergedError, TrainConfig, Trainer
from icda.training.config import save_config
from icda.training.run import build, evaluate_run, load_task, make_accelerator, visible_task

# Training settings a search may change; every other name is an option of the method.
SETTINGS = ("learning_rate", "weight_decay", "momentum", "batch_size", "warmup_epochs", "clip_norm")


@dataclass(frozen=True)
class Dimension:
    """One name with the range, or the list, its value is drawn from."""

    name: str
    low: float = 0.0
    high: float = 0.0
    kind: str = "linear"  # linear, log or int
    choices: tuple[Any, ...] = ()

    def draw(self, trial: Any) -> Any:
        """A value proposed by an Optuna trial."""
        if self.choices:
            return trial.suggest_categorical(self.name, list(self.choices))
        if self.kind == "int":
            return trial.suggest_int(self.name, int(self.low), int(self.high))
        return trial.suggest_float(self.name, self.low, self.high, log=self.kind == "log")


def parse_space(words: Sequence[str]) -> list[Dimension]:
    """Read a search space from the command line.

    >>> [(d.name, d.low, d.high, d.kind) for d in parse_space(["lambda0=0.1:1", "learning_rate=0.01:0.3:log"])]
    [('lambda0', 0.1, 1.0, 'linear'), ('learning_rate', 0.01, 0.3, 'log')]
    >>> parse_space(["covariance=full,diagonal"])[0].choices
    ('full', 'diagonal')
    """
    space = [_parse(word) for word in words]
    names = [dimension.name for dimension in space]
    if not space:
        raise InputError("--space is empty: say what to search, such as --space lambda0=0.1:1.0 beta=0:0.5.")
    if len(set(names)) < len(names):
        raise InputError(f"--space names something twice: {', '.join(names)}.")
    return space


def check_space(space: Sequence[Dimension], method: str) -> None:
    """Refuse a name that is neither a setting of training nor an option of the method."""
    known = [*SETTINGS, *option_names(method_class(method))]
    check_names({dimension.name: dimension for dimension in space}, known, f"--space of {method!r}", "name")


def _parse(word: str) -> Dimension:
    name, separator, text = word.partition("=")
    if not (separator and name and text):
        raise InputError(
            f"--space expects name=low:high, name=low:high:log, name=low:high:int or name=a,b, got {word!r}."
        )
    if ":" not in text:
        return Dimension(name, choices=tuple(read_yaml(part, f"--space {word}: the value") for part in text.split(",")))
    bounds, kind = text.split(":"), "linear"
    if len(bounds) == 3:
        kind = bounds.pop()
    try:
        low, high = (float(bound) for bound in bounds)
    except ValueError as error:
        raise InputError(f"--space {word}: expected two numbers, low:high.") from error
    if kind not in ("linear", "log", "int"):
        raise InputError(f"--space {word}: after low:high comes log or int, got {kind!r}.")
    if not (low < high and math.isfinite(low) and math.isfinite(high)) or (kind == "log" and low <= 0):
        raise InputError(f"--space {word}: expected low < high, and low > 0 for log.")
    return Dimension(name, low, high, kind)


STORAGE, BEST = "study.db", "best.yaml"


@dataclass(frozen=True)
class BestTrial:
    """The best trial so far: its number, what it chose, and what that was worth on validation data."""

    trial: int
    values: dict[str, Any]
    score: float
    trials: int


def tune(
    config: TrainConfig,
    space: Sequence[Dimension],
    trials: int,
    *,
    metric: str = "accuracy",
    say: Callable[[str], None] = print,
) -> BestTrial:
    """Search until `trials` trials are finished in `config.out`; trials of an earlier call count, so a killed one goes on.

    Each trial trains with the proposed values and is worth the metric of its selected model on the validation split. A
    trial that diverges or is refused is worth nothing and the search goes on; the trial a killed process was at is taken
    up again, from its last checkpoint. What a trial proposes depends on the seed and the trials before it alone. The best
    configuration is written to `best.yaml`, for `icda train --config`.
    """
    plugins.load(config.plugin)
    check_space(space, config.method)
    check_task(config, metric)
    optuna = require("optuna", "tune", "hyper-parameter searches")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    folder = config.folder()
    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        storage=f"sqlite:///{folder / STORAGE}",
        study_name=study_name(config, space, metric),
        direction="maximize",
        load_if_exists=True,
    )
    states = optuna.trial.TrialState
    for trial in study.get_trials(states=(states.RUNNING,)):  # interrupted: taken up again
        study.tell(trial.number, state=states.FAIL)
        study.enqueue_trial(trial.params, skip_if_exists=True)
    while (done := len(study.get_trials(states=(states.COMPLETE, states.PRUNED)))) < trials:
        # A new sampler for each trial: one that lived on would start again at its first draw after a resume.
        digest = hashlib.sha256(f"{config.seed} {done}".encode()).digest()
        study.sampler = optuna.samplers.TPESampler(seed=int.from_bytes(digest[:4], "big"))
        study.optimize(lambda trial: _objective(optuna, trial, config, space, metric), n_trials=1)
        last = study.trials[-1]
        say(f"trial {done + 1} of {trials}: {_described(last.params)}: {_worth(last, metric)}")
    if not study.get_trials(states=(states.COMPLETE,)):
        raise OperationError(f"none of {done} trials succeeded; the last: {_worth(study.trials[-1], metric)}")
    best = study.best_trial
    save_config(apply_values(config, best.params, TrainConfig.out), folder / BEST)
    return BestTrial(best.number, dict(best.params), float(best.value), done)


def check_task(config: TrainConfig, metric: str) -> None:
    """A search needs validation data that are neither the test data nor learned from."""
    task = visible_task(config, load_task(config))
    if task.validation is None:
        raise InputError(
            f"task {task.name!r} has no validation split, and test data must not choose: take a task that has one "
            "(`icda list tasks`; cifar10_..._small_validation, digits...), or your own --data."
        )
    if metric in METRICS and METRICS.get(metric).needs_groups and task.validation.groups is None:
        raise InputError(f"metric {metric!r} needs groups, and the validation split of {task.name!r} has none.")
    _, method = build(config, task)
    if any(stage.split == "validation" for stage in method.stages(config.epochs)):
        raise InputError(
            f"method {config.method!r} learns from the validation split, so that split cannot say which settings are best."
        )


def study_name(config: TrainConfig, space: Sequence[Dimension], metric: str) -> str:
    """A search is the same one only with the same settings, space and metric."""
    digest = hashlib.sha256(f"{config.hash()} {sorted(map(repr, space))} {metric}".encode())
    return f"{config.method}-{digest.hexdigest()[:12]}"


def apply_values(config: TrainConfig, values: dict[str, Any], out: str) -> TrainConfig:
    """The configuration of one trial."""
    settings = {name: value for name, value in values.items() if name in SETTINGS}
    options = {name: value for name, value in values.items() if name not in SETTINGS}
    return replace(config, **settings, options={**config.options, **options}, out=out)


def validation_score(config: TrainConfig, metric: str) -> float:
    """Train, and evaluate the selected model on the validation split."""
    task = visible_task(config, load_task(config))
    assert task.validation is not None, "check_task comes first"
    task = replace(task, test=task.validation)  # what is not there cannot be looked at
    accelerator = make_accelerator(config.precision)
    networks, method = build(config, task)
    trainer = Trainer(config, task, networks, method, config.folder(), accelerator)
    trainer.run(resume=True)
    trainer.load_model()
    result = evaluate_run(config, task, trainer.models, trainer.method, accelerator, "validation")
    if result["metrics"].get(metric) is None:
        known = [name for name, value in result["metrics"].items() if isinstance(value, float)]
        check_names([metric], known, "validation data", "metric")
    return float(result["metrics"][metric])


def _objective(optuna: Any, trial: Any, config: TrainConfig, space: Sequence[Dimension], metric: str) -> float:
    values = {dimension.name: dimension.draw(trial) for dimension in space}
    proposed = apply_values(config, values, "")
    # The folder follows the configuration, so that a trial taken up again finds its checkpoint.
    out = str(config.folder() / f"trial-{proposed.hash()}")
    try:
        return validation_score(replace(proposed, out=out), metric)
    except (DivergedError, ValueError) as error:
        trial.set_user_attr("reason", str(error))
        raise optuna.TrialPruned() from error


def _described(values: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )


def _worth(trial: Any, metric: str) -> str:
    if trial.value is None:
        return f"given up, {trial.user_attrs.get('reason', 'no reason known')}"
    return f"validation {metric} {trial.value:.4f}"
