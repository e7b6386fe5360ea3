"""`icda predict`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from icda.cli.output import Bar, counted, listed, say
from icda.errors import InputError

if TYPE_CHECKING:  # torch is loaded when there is something to predict, not for --help
    from icda.serving import Predictions


@dataclass
class PredictArguments:
    """Write what a model of `icda fit` or `icda train` says of new inputs, one row per input.

    Example: icda predict model new_photos --out predictions.csv
    """

    model: tyro.conf.Positional[Path]
    """Folder of the model."""
    new: tyro.conf.Positional[Path]
    """A folder of images, flat or nested, a .csv, an .npz or a .parquet, of the kind that the model was fitted to."""
    out: Path = Path("predictions.csv")
    """Table to write: path or row, label, a probability for each class; where the model was treated against a shortcut,
    also the class that the shortcut points to, and whether the label disagrees with it."""
    column: str | None = None
    """Column of paths or texts, or array of features, where it is called otherwise than in the fit."""
    skip_unreadable: bool = False
    """Leave images that cannot be read without a prediction, instead of stopping."""
    allow_outside: bool = False
    """Trust a table, or a folder with links, that names images outside its own folder."""
    allow_hub: bool = False
    """Fetch an encoder or network that the model's file names (hf:, timm:) from its hub, if it is not on this machine."""


def main(arguments: Sequence[str]) -> int:
    options = tyro.cli(PredictArguments, args=list(arguments), prog="icda predict")
    out, new = options.out.expanduser(), options.new.expanduser()
    if out.is_dir():
        raise InputError(f"--out is {out}, which is a folder: expected the name of a table, such as predictions.csv.")
    if out.exists() and new.exists() and out.samefile(new):
        raise InputError(f"--out is {out}, the file to predict itself: it would be lost.")
    from icda.serving import load, predict_data

    model = load(options.model, allow_hub=options.allow_hub)
    with Bar("inputs") as bar:
        predictions = predict_data(
            model,
            new,
            column=options.column,
            skip_unreadable=options.skip_unreadable,
            allow_outside=options.allow_outside,
            progress=bar.update,
        )
    predictions.to_csv(out)
    say(describe(predictions, out))
    return 0


def describe(predictions: Predictions, out: Path) -> str:
    """How many of each class there are, and what to look at."""
    labels, written = predictions.labels, len(predictions) - len(predictions.skipped)
    counts = [f"{name} {int((labels == name).sum())}" for name in predictions.classes]
    lines = [f"{out}: {written} predictions ({counted(counts)})"]
    if predictions.disagreements is not None:
        lines.append(f"{predictions.disagreements} go against what the shortcut points to (column disagree).")
    lines += listed("unreadable, without a prediction", predictions.skipped)
    return "\n".join(lines)
