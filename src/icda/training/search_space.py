"""What a search may choose from: `lambda0=0.1:1`, `learning_rate=0.01:0.3:log`, `hidden=32:256:int`, `beta=0,0.1,0.5`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from icda.errors import InputError
from icda.methods.create import method_class, option_names
from icda.plain_yaml import read_yaml
from icda.registry import UnknownNameError, did_you_mean

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
    for dimension in space:
        if dimension.name not in known:
            hint = did_you_mean(dimension.name, known)
            raise UnknownNameError(f"--space {dimension.name}: {hint}Known for {method!r}: {', '.join(known)}.")


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
