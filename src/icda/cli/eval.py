"""`icda eval`"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from icda.cli.output import counted, group_table, say, tell
from icda.cli.train import HEADLINES
from icda.errors import InputError
from icda.report import comparison_table, to_rich
from icda.results import RunResult
from icda.terminal import make_console
from icda.training import evaluate_folder


@dataclass
class EvalArguments:
    """Evaluate a model that `icda fit` or `icda train` wrote."""

    run: tyro.conf.Positional[Path]
    """Folder of the model or run."""
    split: Literal["train", "validation", "test", "metadata"] = "test"
    """Which split to evaluate."""
    data: str | None = None
    """Other labelled data with the same classes; all of it is judged, or its split of that name where it names splits."""
    group_column: Annotated[str | None, tyro.conf.arg(aliases=["--groups"])] = None
    """With --data: array or column with groups, such as the background; by default that of the fit."""
    skip_unreadable: bool = False
    """With --data: leave out images that cannot be read, instead of stopping."""
    allow_outside: bool = False
    """Trust a table, or a folder with links, that names images outside its own folder."""
    allow_hub: bool = False
    """Fetch a model that the run's file names (hf:, timm:) from its hub, if it is not on this machine."""
    json: bool = False
    """Print the whole result as JSON."""


def main(arguments: Sequence[str]) -> int:
    options = tyro.cli(EvalArguments, args=list(arguments), prog="icda eval")
    if options.data is None:
        if options.group_column is not None:
            raise InputError("--group-column is a column of other data: name them with --data.")
        result = evaluate_folder(options.run, options.split, None, options.allow_outside, options.allow_hub)
    else:
        from icda.serving.judging import judge_data

        result = judge_data(
            options.run,
            options.data,
            options.split,
            allow_outside=options.allow_outside,
            skip_unreadable=options.skip_unreadable,
            allow_hub=options.allow_hub,
            group_column=options.group_column,
            say=tell,
        )
    if options.json:
        print(result.to_json())
        return 0
    caption = "all samples" if result.split == "all" else f"{result.split} split"
    make_console().print(to_rich(comparison_table([result], HEADLINES, caption=caption)))
    if (groups := group_table(result)) is not None:
        make_console().print(groups)
    say(judged(result))
    return 0


def judged(result: RunResult) -> str:
    """How many samples were judged, and of which classes."""
    counts = [sum(row) for row in result.confusion or ()]
    named = [f"{name} {count}" for name, count in zip(result.class_names or (), counts, strict=False)]
    return f"Judged: {sum(counts)} samples ({counted(named)})"
