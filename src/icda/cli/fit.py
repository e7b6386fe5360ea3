"""`icda fit`"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from icda.cli.output import Bar, check_jobs, say, tell
from icda.errors import InputError
from icda.terminal import make_console

if TYPE_CHECKING:  # torch is loaded when there is something to fit, not for --help
    from icda.serving.fit_data import Asked, FitData
    from icda.serving.fitting import Fitted
    from icda.training import TrainConfig


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
    groups: Annotated[str | None, tyro.conf.arg(aliases=["--group-column"])] = None
    """Array or column with known groups, such as the background: used instead of what the audit would guess."""
    where: tuple[str, ...] = ()
    """Of a file of features or numbers, keep only rows in which an array or column has a value: --where year=2020."""
    image_column: str | None = None
    """CSV column with image paths; guessed from common names if not given."""
    text_column: str | None = None
    """CSV column with texts."""
    train: bool = False
    """Train a network end to end, by the trainer of `icda train`, instead of a head on frozen features."""
    compare: bool = True
    """With --train: train a plain network too, to see what the method brought; it doubles the time."""
    model: str | None = None
    """With --train: name of a model (`icda list models`)."""
    epochs: int = 30
    """With --train: passes over the training set."""
    on: Literal["local", "blocks", "ray"] = "local"
    """local (audit, fit, judge in memory); blocks or ray: an .npy, .npz or Parquet whose rows stay on disk, no trial."""
    jobs: int | None = None
    """With --on ray: processes of a Ray on this machine, by default all cores; RAY_ADDRESS names a cluster instead."""
    seed: int = 0
    """Seed of all that is drawn; the same seed gives the same model."""
    overwrite: bool = False
    """Write into --out even if it is not empty."""
    skip_unreadable: bool = False
    """Leave out images that cannot be read, instead of stopping."""
    allow_outside: bool = False
    """Trust a table that names images outside its own folder."""

    def asked(self) -> Asked:
        from icda.data.embedding.samples import Columns
        from icda.serving.fit_data import Asked

        columns = Columns(self.image_column, self.text_column, self.labels, self.groups)
        asked = Asked(self.features, self.labels, self.names, self.groups, columns, self.encoder, self.image_size)
        return replace(asked, where=self.where, skip_unreadable=self.skip_unreadable, allow_outside=self.allow_outside)

    def config(self) -> TrainConfig:
        """The run that --train asks for."""
        from icda.training import TrainConfig

        return TrainConfig(
            data=str(self.data),
            model=self.model,
            epochs=self.epochs,
            seed=self.seed,
            out=str(self.out.expanduser()),
            image_column=self.image_column,
            text_column=self.text_column,
            label_column=self.labels,
            group_column=self.groups,
            skip_unreadable=self.skip_unreadable,
            allow_outside=self.allow_outside,
            image_size=self.image_size or TrainConfig.image_size,
        )


def main(arguments: Sequence[str]) -> int:
    options = tyro.cli(FitArguments, args=list(arguments), prog="icda fit")
    from icda.methods import resolve_method
    from icda.serving.fit_data import read_fit_data
    from icda.serving.fitting import check_out, write_fitted
    from icda.serving.folder import PAGE
    from icda.serving.head_fit import AUTO, check_method
    from icda.serving.page import render_fit_page

    if not options.train:
        check_method(options.method)
    elif options.method != AUTO:
        resolve_method(options.method)
    folder = options.out.expanduser()
    check_out(folder, options.overwrite)
    check_jobs("the fit", options.on, options.jobs)
    if options.on != "local":
        return _fit_blocks(options, folder)
    started = time.perf_counter()
    with Bar("inputs embedded") as bar:
        data = read_fit_data(options.data.expanduser(), options.asked(), folder, options.overwrite, bar.update)
    spent = {"read": time.perf_counter() - started}
    for note in data.notes:
        tell(note)
    fitted = _fit(options, data)
    fitted = replace(fitted, seconds={**spent, **fitted.seconds})
    write_fitted(fitted, folder, render_fit_page(fitted, str(options.out), options.data.name))
    make_console().print(summary(fitted))
    say(f"Model: {folder}\nPage to open in a browser: {folder / PAGE}\n{_next(folder)}")
    return 0


def _fit_blocks(options: FitArguments, folder: Path) -> int:
    from icda.engines import make_engine
    from icda.serving.block_fit import fit_from_blocks

    if options.train or options.encoder is not None or options.where:
        raise InputError("--on blocks and --on ray fit heads to features: leave out --train, --encoder and --where.")
    asked = options.asked()
    wanted = replace(asked.columns, features=asked.features, names=asked.names)
    with make_engine("ray" if options.on == "ray" else "local", options.jobs) as engine:
        model = fit_from_blocks(options.data.expanduser(), wanted, options.method, engine, tell, options.seed)
    model.save(folder)
    facts = model.facts
    state = "converged" if facts["converged"] else "stopped at the limit of iterations"
    said = f"{facts.get('found', '')}\nDone: {facts['done']}\n".lstrip()
    rows = f"{facts['samples']} rows, {len(model.classes)} classes"
    say(f"{said}{rows}: {facts['iterations']} iterations, {facts['passes']} passes, {state}.")
    say(f"Model: {folder}\n{_next(folder)}")
    return 0


def _next(folder: Path) -> str:
    return f"Next: icda predict {folder} NEW --out predictions.csv"


def _fit(options: FitArguments, data: FitData) -> Fitted:
    if not options.train:
        from icda.serving.fitting import fit_model

        return fit_model(data, options.method, options.seed, tell)
    from icda.serving.network_fit import NetworkSettings, fit_network
    from icda.training.progress import TerminalView

    settings = NetworkSettings(options.config(), options.compare, options.overwrite)
    return fit_network(data, settings, options.method, tell, TerminalView())


def summary(fitted: Fitted) -> RenderableType:
    """What was found, done and brought, for a terminal."""
    from icda.report.formatting import percent

    trial = fitted.trial
    table = Table(title=f"judged: {trial.held_out}", title_justify="left")
    for name in ("", "which", "samples", "plain training", "this model"):
        table.add_column(name, justify="left" if name in ("", "which") else "right", overflow="fold")
    for line in trial.lines():
        before = "" if line.before is None else percent(line.before.accuracy)
        figures = (str(line.after.samples), before, percent(line.after.accuracy))
        table.add_row(Text(line.name.lower()), Text(line.which), *figures)
    parts: list[RenderableType] = [Text(fitted.audit.summary, style="bold"), Text(f"Done: {fitted.done}"), table]
    if fitted.data.skipped:
        parts.append(Text(f"{len(fitted.data.skipped)} unreadable files were left out."))
    return Group(*parts)
