"""`icda train`"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tyro

from icda.cli.environment import config_path, is_given
from icda.cli.output import group_table, say, tell
from icda.errors import InputError
from icda.results.files import REPORT
from icda.settings import read_yaml
from icda.terminal import make_console
from icda.training.config import TrainConfig, load_config

HEADLINES = ("accuracy", "balanced_accuracy", "worst_class_accuracy", "worst_group_accuracy")


@dataclass
class TrainArguments:
    """Train a classifier on a task, or on your own folder or CSV."""

    run: tyro.conf.OmitArgPrefixes[TrainConfig] = field(default_factory=TrainConfig)
    config: Path | None = None
    """YAML file of settings (such as an earlier run's config.yaml); options given beside it win."""
    set: tuple[str, ...] = ()
    """Options of the method, as name=value: --set lambda0=0.25 beta=0."""
    resume: bool = False
    """Go on from the checkpoint in --out; a finished run is shown, not run again."""
    overwrite: bool = False
    """Start again even if --out holds a run."""
    quiet: bool = False
    """Show no progress."""


def main(arguments: Sequence[str]) -> int:
    default = TrainArguments(run=load_config(path)) if (path := config_path(arguments)) else TrainArguments()
    options = tyro.cli(TrainArguments, args=list(arguments), default=default, prog="icda train")
    config = replace(options.run, options={**options.run.options, **parse_options(options.set)})
    config = with_default_rule(config, arguments)
    from icda.report import comparison_table, to_rich  # torch, seconds that --help should not take
    from icda.training import train
    from icda.training.progress import ProgressView, TerminalView

    view = ProgressView() if options.quiet else TerminalView()
    if not options.quiet and os.environ.get("RANK", "0") == "0" and (note := cost_note(config)):
        tell(note)
    result = train(config, resume=options.resume, overwrite=options.overwrite, view=view)
    if os.environ.get("RANK", "0") != "0":  # under torchrun one process prints for all
        return 0
    folder = config.folder()
    make_console().print(to_rich(comparison_table([result], HEADLINES)))
    if (groups := group_table(result)) is not None:
        make_console().print(groups)
    if result.found:
        say(f"What {result.method} found: {result.found}")
    say(f"Model, log and result: {folder}\nReport to open in a browser: {folder / REPORT}")
    return 0


def with_default_rule(config: TrainConfig, arguments: Sequence[str]) -> TrainConfig:
    """The selection rule that belongs to the other settings, where neither the command nor a file names one.

    >>> words = ["--attributes", "unknown"]
    >>> with_default_rule(TrainConfig(selection="last", attributes="unknown"), words).selection
    'validation_worst_class'
    """
    named = is_given("--selection", arguments) or config_path(arguments) is not None
    return config if named else replace(config, selection="")


def cost_note(config: TrainConfig) -> str:
    """What the method says of its cost before it starts; nothing for a loss and for most methods.

    >>> cost_note(TrainConfig(method="xrm", epochs=10))
    'First trains 2 networks for 5 epochs, each on 1 of 2 parts of the samples; then one for 10: about 1.7 times plain \
training.'
    >>> cost_note(TrainConfig(method="icda"))
    ''
    """
    from icda.methods.create import method_class

    said = getattr(method_class(config.method), "cost_note", None)
    return "" if said is None else str(said(config.epochs, config.options))


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Read name=value pairs, values as YAML.

    >>> parse_options(["lambda0=0.25", "semantic=false", "covariance=full"])
    {'lambda0': 0.25, 'semantic': False, 'covariance': 'full'}
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise InputError(f"--set expects name=value, got {pair!r}.")
        options[name] = read_yaml(value, f"--set {pair}: the value")
    return options
