"""`icda tune`"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import tyro

from icda.cli.output import say
from icda.cli.train import parse_options, with_default_rule
from icda.errors import InputError
from icda.training import TrainConfig
from icda.training.tuning import BEST, parse_space, tune


@dataclass
class TuneArguments:
    """Search options of a method and settings of training on validation data (Optuna); test data are not looked at."""

    space: tuple[str, ...] = ()
    """What to search: lambda0=0.1:1 (a range), learning_rate=0.01:0.3:log, hidden=32:256:int, beta=0,0.1,0.5 (a list)."""
    trials: int = 20
    """Finished trials in the end, those of earlier calls included."""
    metric: str = "accuracy"
    """What is to be high on validation data: accuracy, balanced_accuracy, worst_class_accuracy, worst_group_accuracy ..."""
    set: tuple[str, ...] = ()
    """Options of the method that stay fixed, as name=value."""
    run: tyro.conf.OmitArgPrefixes[TrainConfig] = field(
        default_factory=lambda: TrainConfig(out="runs/tune/{task}/{method}/seed{seed}")
    )


def main(arguments: Sequence[str]) -> int:
    options = tyro.cli(TuneArguments, args=list(arguments), prog="icda tune")
    if options.trials < 1:
        raise InputError(f"--trials must be at least 1, got {options.trials}.")
    config = replace(options.run, options={**options.run.options, **parse_options(options.set)})
    config = with_default_rule(config, arguments)
    best = tune(config, parse_space(options.space), options.trials, metric=options.metric, say=say)
    say(
        f"best of {best.trials}: validation {options.metric} {best.score:.4f} with {best.values}\n"
        f"icda train --config {config.folder() / BEST}\nThe same call goes on where it stopped."
    )
    return 0
