"""`icda eval`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from icda.cli.train import HEADLINES
from icda.report import comparison_table, to_rich
from icda.terminal import make_console
from icda.training import evaluate_folder


@dataclass
class EvalArguments:
    """Evaluate the model of an earlier run."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    split: Literal["train", "validation", "test", "metadata"] = "test"
    """Which split to evaluate."""
    data: str | None = None
    """Another folder or CSV with the same classes; its test split is judged (a fifth of it where it names none)."""
    allow_outside: bool = False
    """Trust a table that names images outside its own folder."""
    allow_hub: bool = False
    """Fetch a model that the run's file names (hf:, timm:) from its hub, if it is not on this machine."""
    json: bool = False
    """Print the whole result as JSON."""


def main(arguments: Sequence[str]) -> int:
    options = tyro.cli(EvalArguments, args=list(arguments), prog="icda eval")
    result = evaluate_folder(options.run, options.split, options.data, options.allow_outside, options.allow_hub)
    if options.json:
        print(result.to_json())
        return 0
    make_console().print(to_rich(comparison_table([result], HEADLINES, caption=f"{options.split} split")))
    return 0
