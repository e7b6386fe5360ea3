"""`icda fit`"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from icda.cli.embed import Bar
from icda.data.embedding.samples import Columns
from icda.serving.fit_data import Asked, read_fit_data
from icda.serving.fitting import Fitted, check_out, fit_model, write_fitted
from icda.serving.folder import PAGE
from icda.serving.head_fit import check_method
from icda.serving.page import render_fit_page
from icda.serving.trial import Part
from icda.terminal import make_console


@dataclass
class FitArguments:
    """Make a classifier from your data: embed, audit, treat what was found, and write a model folder with a page.

    Example: icda fit photos --out model && icda predict model new_photos --out predictions.csv
    """

    data: tyro.conf.Positional[Path]
    """A folder of images (one sub-folder per class), a .csv of image paths, texts or numbers, an .npz or a .parquet."""
    out: Path = Path("model")
    """Folder for the model and its page."""
    method: str = "auto"
    """auto (what the audit recommends), ce, la, isda, risda or icda; with --train any method of `icda list methods`."""
    encoder: str | None = None
    """efficientnet_lite0 (default for images), minilm (default for texts), hf:PATH_OR_ID or timm:NAME."""
    image_size: int | None = None
    """Side to which images are squeezed; by default what the encoder was trained with."""
    features: str | None = None
    """Array of an .npz, or columns of a .parquet, with the features; guessed from common names if not given."""
    labels: Annotated[str | None, tyro.conf.arg(aliases=["--label-column"])] = None
    """Array or column with the labels; guessed from common names if not given."""
    names: Annotated[str | None, tyro.conf.arg(aliases=["--name-column"])] = None
    """Array or column with ids to show beside ranks; guessed from common names if not given."""
    image_column: str | None = None
    """CSV column with image paths; guessed from common names if not given."""
    text_column: str | None = None
    """CSV column with texts."""
    seed: int = 0
    """Seed of all that is drawn; the same seed gives the same model."""
    overwrite: bool = False
    """Write into --out even if it is not empty."""
    skip_unreadable: bool = False
    """Leave out images that cannot be read, instead of stopping."""
    allow_outside: bool = False
    """Trust a table that names images outside its own folder."""

    def asked(self) -> Asked:
        columns = Columns(self.image_column, self.text_column, None)
        asked = Asked(self.features, self.labels, self.names, columns, self.encoder, self.image_size)
        return replace(asked, skip_unreadable=self.skip_unreadable, allow_outside=self.allow_outside)


def main(arguments: Sequence[str]) -> int:
    options = tyro.cli(FitArguments, args=list(arguments), prog="icda fit")
    console, progress = make_console(), make_console(stderr=True)
    check_method(options.method)
    folder = options.out.expanduser()
    check_out(folder, options.overwrite)
    started = time.perf_counter()
    with Bar("inputs embedded") as bar:
        data = read_fit_data(options.data.expanduser(), options.asked(), folder, options.overwrite, bar.update)
    spent = {"read": time.perf_counter() - started}
    for note in data.notes:
        progress.print(note, highlight=False, markup=False)
    fitted = fit_model(data, options.method, options.seed, lambda words: progress.print(words, highlight=False))
    fitted = replace(fitted, seconds={**spent, **fitted.seconds})
    write_fitted(fitted, folder, render_fit_page(fitted, str(options.out), options.data.name))
    console.print(summary(fitted))
    console.print(
        f"Model: {folder}\nPage to open in a browser: {folder / PAGE}\n"
        f"Next: icda predict {folder} NEW --out predictions.csv",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    return 0


def summary(fitted: Fitted) -> RenderableType:
    """What was found, done and brought, for a terminal."""
    trial = fitted.trial
    table = Table(title=f"judged: {trial.held_out}", title_justify="left")
    for name in ("", "which", "samples", "plain training", "this model"):
        table.add_column(name, justify="left" if name in ("", "which") else "right", overflow="fold")
    table.add_row("accuracy", "all", str(trial.samples), _share(trial.before.accuracy), _share(trial.after.accuracy))
    _add_worst(table, "worst class", trial.before.worst_class, trial.after.worst_class)
    if trial.before.worst_group is not None and trial.after.worst_group is not None:
        _add_worst(table, "worst suspected group", trial.before.worst_group, trial.after.worst_group)
    parts: list[RenderableType] = [Text(fitted.audit.summary, style="bold"), Text(f"Done: {fitted.done}"), table]
    if fitted.data.skipped:
        parts.append(Text(f"{len(fitted.data.skipped)} unreadable files were left out."))
    return Group(*parts)


def _add_worst(table: Table, name: str, before: Part, after: Part) -> None:
    which = before.name if before.name == after.name else f"{before.name} → {after.name}"
    table.add_row(name, Text(which), str(after.samples), _share(before.accuracy), _share(after.accuracy))


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"
