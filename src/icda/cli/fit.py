"""`icda fit`"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from icda.cli.output import Bar, check_jobs, check_seed, make_table, say, tell
from icda.errors import InputError
from icda.terminal import make_console

if TYPE_CHECKING:
    from icda.data.embedding import Samples
    from icda.serving.fit_data import Asked
    from icda.serving.fitting import Fitted
    from icda.serving.trial import Trial
    from icda.training import TrainConfig


@dataclass
class InputArguments:
    data: tyro.conf.Positional[Path]
    """A folder of images (one sub-folder per class), a .csv of image paths, texts or numbers, an .npz or a .parquet."""
    encoder: str | None = None
    """efficientnet_lite0 (default for images), minilm (default for texts), hf:PATH_OR_ID or timm:NAME."""
    image_size: int | None = None
    """Side to which images are squeezed; by default what the encoder was trained with."""
    image_column: str | None = None
    """CSV column with image paths; guessed from common names if not given."""
    text_column: str | None = None
    """CSV column with texts."""
    skip_unreadable: bool = False
    """Leave out images that cannot be read, instead of stopping."""
    allow_outside: bool = False
    """Trust a table, or a folder with links, that names images outside its own folder."""


@dataclass
class DataArguments(InputArguments):
    features: str | None = None
    """Array of an .npz, or columns of a .parquet, with the features; guessed from common names if not given."""
    labels: Annotated[str | None, tyro.conf.arg(aliases=["--label-column"])] = None
    """Array or column with the labels; guessed from common names if not given."""
    names: Annotated[str | None, tyro.conf.arg(aliases=["--name-column"])] = None
    """Array or column with ids to show beside ranks; guessed from common names if not given."""
    groups: Annotated[str | None, tyro.conf.arg(aliases=["--group-column"])] = None
    """Array or column with known groups, such as the background; empty cells, where a group is not known, are filled."""
    where: tuple[str, ...] = ()
    """Of a file of features or numbers, keep only rows in which an array or column has a value: --where year=2020."""
    table: bool = False
    """Of a .csv with a column of texts or paths beside columns of numbers: fit to all columns, as a table."""
    seed: int = 0
    """Seed of all that is drawn; the same seed gives the same result."""
    overwrite: bool = False
    """Write into --out even if it is not empty."""

    def asked(self) -> Asked:
        from icda.serving.fit_data import Asked

        same = {name: value for name, value in vars(self).items() if name in Asked.__dataclass_fields__}
        return Asked(**same | {"table": self.table or None}, image=self.image_column, text=self.text_column)


GROUPS_SHOWN = 20
NEXT = "Next: icda predict {} NEW --out predictions.csv"
# What --train begins with: from nothing, a network learns of 300 photos little but the shortcut. Worst group on 400
# balanced photos, one seed: all layers trained for 4 epochs 1 %, the last layer alone for 8 epochs 70 %.
PRETRAINED: dict[str, dict[str, Any]] = {
    "image": {"model": "efficientnet_lite0_frozen"},
    "text": {"model": "minilm_top3", "optimizer": "adam", "learning_rate": 2e-4, "weight_decay": 0.0},
}
PRETRAINED_SIZE = 128  # pixels a side: a third of the time that 224 take


@dataclass
class FitArguments(DataArguments):
    """Make a classifier from your data: embed, audit, treat what was found, and write a model folder with a page.

    Example: icda fit photos --out model && icda predict model new_photos --out predictions.csv
    """

    out: Path = Path("model")
    """Folder for the model and its page."""
    answers: Path | None = None
    """A person's answers.csv, saved by the page of `icda ask`: groups of some samples, and corrected labels."""
    method: str = "auto"
    """auto (what the audit recommends), ce, la, isda, risda or icda; with --train any method of `icda list methods`."""
    train: bool = False
    """Train a network end to end, by the trainer of `icda train`, instead of a head on frozen features."""
    compare: bool = True
    """With --train: train a plain network too, to see what the method brought; it doubles the time."""
    model: str | None = None
    """With --train: name of a model (`icda list models`); by default the shipped pretrained one."""
    epochs: int = 30
    """With --train: passes over the training set."""
    on: Literal["local", "blocks", "ray"] = "local"
    """local (audit, fit, judge in memory); blocks or ray: an .npy, .npz or Parquet whose rows stay on disk, no trial."""
    jobs: int | None = None
    """With --on ray: processes of a Ray on this machine, by default all cores; RAY_ADDRESS names a cluster instead."""

    def config(self, kind: str) -> TrainConfig:
        """The run that --train asks for, of images or texts; by default it begins with a pretrained network."""
        from icda.training import TrainConfig

        usual = PRETRAINED.get(kind, {}) if self.model is None else {"model": self.model}
        image_size = self.image_size or (PRETRAINED_SIZE if self.model is None else TrainConfig.image_size)
        same = ("epochs", "seed", "image_column", "text_column", "skip_unreadable", "allow_outside")
        return TrainConfig(
            **usual,
            **{name: getattr(self, name) for name in same},
            data=str(self.data),
            out=str(self.out.expanduser()),
            label_column=self.labels,
            group_column=self.groups,
            image_size=image_size,
        )


def main(arguments: Sequence[str]) -> int:
    options = tyro.cli(FitArguments, args=list(arguments), prog="icda fit")
    from icda.methods import resolve_method
    from icda.results.claims import claimed
    from icda.serving.fitting import check_out
    from icda.serving.head_fit import AUTO, check_method
    from icda.serving.network_fit import RUN_FILES

    if not options.train:
        check_method(options.method)
    elif options.method != AUTO:
        resolve_method(options.method)
    folder = options.out.expanduser()
    check_seed(options.seed)
    check_jobs("the fit", options.on, options.jobs)
    check_out(folder, options.overwrite, RUN_FILES if options.train else ())
    with claimed(folder, wait=False):
        return _fit_blocks(options, folder) if options.on != "local" else _fit_here(options, folder, arguments)


def _fit_here(options: FitArguments, folder: Path, arguments: Sequence[str]) -> int:
    from icda.results.claims import renewed
    from icda.serving.answers import read_answers, with_answers, write_answers
    from icda.serving.fit_data import read_fit_data, write_source
    from icda.serving.fitting import write_fitted
    from icda.serving.folder import ANSWERS, PAGE, QUESTIONS, SOURCE, WRITTEN
    from icda.serving.page import render_fit_page
    from icda.serving.questions import write_question_page

    started = time.perf_counter()
    with Bar("inputs embedded") as bar:
        data = read_fit_data(options.data.expanduser(), options.asked(), folder, options.overwrite, bar.update)
    spent = {"read": time.perf_counter() - started}
    answers = {} if options.answers is None else read_answers(options.answers.expanduser())
    if answers:
        data = with_answers(data, answers, str(options.answers))
    for note in data.notes:
        tell(note)
    fitted = _fit(options, data)
    fitted = replace(fitted, seconds={**spent, **fitted.seconds})
    with renewed(folder, WRITTEN) as aside:
        write_fitted(fitted, aside, render_fit_page(fitted, str(options.out), options.data.name))
        if answers:
            write_answers(aside / ANSWERS, answers)
        write_source(aside / SOURCE, folder, options.data, options.asked())
        write_question_page(fitted, aside, answers, refit_command(arguments))
    make_console().print(summary(fitted))
    say(f"Model: {folder}\nPage to open in a browser: {folder / PAGE}")
    if not answers and data.groups is None and not options.train:
        say(
            f"Two dozen answers of yours may repair more than a guess: icda ask {folder} --serve, or {folder / QUESTIONS}"
        )
    say(NEXT.format(folder))
    return 0


def refit_command(words: Sequence[str]) -> str:
    """The same fit, with the answers that the page will have saved.

    >>> refit_command(["photos", "--answers", "old.csv"])
    'icda fit photos --answers answers.csv --overwrite'
    """
    kept = [word for word in words if word != "--overwrite" and not word.startswith("--answers=")]
    if "--answers" in kept:
        place = kept.index("--answers")
        del kept[place : place + 2]
    return shlex.join(["icda", "fit", *kept, "--answers", "answers.csv", "--overwrite"])


def _fit_blocks(options: FitArguments, folder: Path) -> int:
    from icda.engines import make_engine
    from icda.serving.head_fit import fit_from_blocks

    if options.train or options.encoder is not None or options.where:
        raise InputError("--on blocks and --on ray fit heads to features: leave out --train, --encoder and --where.")
    with make_engine("ray" if options.on == "ray" else "local", options.jobs) as engine:
        model = fit_from_blocks(options.data.expanduser(), options.asked(), options.method, engine, tell, options.seed)
    model.save(folder)
    facts = model.facts
    state = "converged" if facts["converged"] else "stopped at the limit of iterations"
    said = f"{facts.get('found', '')}\nDone: {facts['done']}\n".lstrip()
    rows = f"{facts['samples']} rows, {len(model.classes)} classes"
    say(f"{said}{rows}: {facts['iterations']} iterations, {facts['passes']} passes, {state}.")
    say(f"Model: {folder}\n{NEXT.format(folder)}")
    return 0


def _fit(options: FitArguments, data: Samples) -> Fitted:
    if not options.train:
        from icda.serving.fitting import fit_model

        return fit_model(data, options.method, options.seed, tell)
    from icda.serving.network_fit import fit_network
    from icda.training.progress import TerminalView

    config, how = options.config(data.reads.kind), {"compare": options.compare, "overwrite": options.overwrite}
    return fit_network(data, config, options.method, **how, say=tell, view=TerminalView())


def summary(fitted: Fitted) -> RenderableType:
    """What was found, done and brought, for a terminal."""
    from icda.serving.headline import found_in_short, headline, warning

    trial = fitted.trial
    table = make_table(f"judged: {trial.held_out}", ["", "which"], ["samples", "plain training", "this model"])
    for line in trial.lines():
        table.add_row(Text(line.name.lower()), Text(line.which), str(line.after.samples), *line.shares)
    said = warning(fitted)
    parts: list[RenderableType] = [Text(said, style="bold")] if said else []
    parts += [Text(found_in_short(fitted), style="bold"), Text(headline(fitted)), Text(f"Done: {fitted.done}"), table]
    if trial.after.groups:
        parts.append(_groups(trial))
    if fitted.data.skipped:
        parts.append(Text(f"{len(fitted.data.skipped)} unreadable files were left out."))
    return Group(*parts)


def _groups(trial: Trial) -> Table:
    """Every group with its size; those too small to judge as such."""
    table = make_table("groups (class x attribute)", ["group"], ["samples", "plain training", "this model"])
    for line in trial.group_lines()[:GROUPS_SHOWN]:
        before, after = line.shares
        shown = after if line.after.is_judged else "too few to judge"
        table.add_row(Text(line.name), str(line.after.samples), before, shown)
    return table
