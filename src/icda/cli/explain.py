"""`icda explain`"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from icda.errors import InputError
from icda.explain.figures import FigureOptions, TrainedRun, check_suffix, make_figure
from icda.explain.pictures import has_pictures
from icda.explain.run import PARTS, explain_run
from icda.results import RunResult, read_json
from icda.results.files import EXPLANATIONS, RESULT, write_json
from icda.training.run import load_folder


@dataclass
class ExplainArguments:
    """Explain trained runs: write explanations.json into each of them or, with --figure, one figure of all of them."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished runs."""
    figure: Literal["margins", "variance", "gradcam", "counterfactual"] | None = None
    """One of the paper's figures, written to --out with its numbers in CSV files beside it."""
    out: Path | None = None
    """File of the figure: .png, .pdf or .svg."""
    parts: tuple[Literal["margins", "strengths", "variances", "tied", "gradcam", "counterfactuals"], ...] = ()
    """Parts of explanations.json; all that the task allows if none is named."""
    split: Literal["train", "validation", "test", "metadata"] = "test"
    """Split for margins and Grad-CAM."""
    samples: int = 8
    """Pictures in a figure of pictures."""
    measured: int = 200
    """Samples whose heat the tables of the Grad-CAM figure count."""
    layer: str | None = None
    """Layer for Grad-CAM; the last one with maps or tokens if not given."""
    seed: int = 0
    """Seed of what is sampled and drawn."""


def main(arguments: Sequence[str]) -> int:
    given = tyro.cli(ExplainArguments, args=list(arguments), prog="icda explain")
    _check(given)
    console = Console()
    if given.figure is None:
        for folder in given.runs:
            path = explain_folder(folder, given)
            console.print(f"Explanations: {path}", highlight=False, soft_wrap=True)
        return 0
    assert given.out is not None
    labels = run_labels(given.runs)
    runs = [load_run(folder, label) for folder, label in zip(given.runs, labels, strict=True)]
    options = FigureOptions(given.split, given.samples, given.measured, given.seed, given.layer)
    for path in make_figure(given.figure, runs, given.out, options):
        console.print(f"Written: {path}", highlight=False, soft_wrap=True)
    return 0


def _check(given: ExplainArguments) -> None:
    """What can be wrong with the words alone, found before any model is loaded."""
    if not given.runs:
        raise InputError("icda explain wants the folder of at least one run: icda explain runs/digits_lt/icda/seed0")
    if given.figure is None and given.out is not None:
        raise InputError(f"--out {given.out} without --figure: say which figure to draw.")
    if given.figure is not None and given.out is None:
        raise InputError(f"--figure {given.figure} needs --out FILE.png, .pdf or .svg.")
    if given.figure is not None and given.parts:
        raise InputError("--parts belongs to explanations.json, --figure to a picture: give one of them.")
    if given.samples < 1 or given.measured < 1:
        raise InputError(f"--samples and --measured must be positive, got {given.samples} and {given.measured}.")
    if given.out is not None:
        check_suffix(given.out)


def explain_folder(folder: Path, given: ExplainArguments) -> Path:
    """Write the parts into the folder's explanations.json; parts that are there already and not asked for stay."""
    run = load_run(folder, str(folder))
    parts: tuple[str, ...] = given.parts
    if not parts:
        parts = tuple(part for part in PARTS if has_pictures(run.task) or part not in ("gradcam", "counterfactuals"))
    found = explain_run(
        run.task, run.networks, run.method, parts=parts, split=given.split, seed=given.seed, history=run.history
    )
    path = folder / EXPLANATIONS
    earlier = read_json(path) if path.is_file() else {}
    if earlier.get("split", given.split) != given.split:  # margins of one split beside heat of another would mislead
        print(f"icda: {path} was of the {earlier['split']} split; its parts are replaced.", file=sys.stderr)
        earlier = {}
    write_json(path, earlier | found)
    return path


def load_run(folder: Path, label: str) -> TrainedRun:
    """The trained model of a folder, with the epochs of its result."""
    _, task, networks, method = load_folder(folder)
    path = folder / RESULT
    history = RunResult.read(path).history if path.is_file() else None
    return TrainedRun(label, task, networks, method, history or ())


def run_labels(folders: Sequence[Path]) -> list[str]:
    """Short names for folders: the parts of their paths in which they differ.

    >>> run_labels([Path("runs/digits/icda/seed0"), Path("runs/digits/isda/seed0")])
    ['icda', 'isda']
    >>> run_labels([Path("runs/digits/icda/seed0")])
    ['digits/icda/seed0']
    """
    parts = [folder.parts for folder in folders]
    if len(parts) == 1 or len({len(part) for part in parts}) > 1:
        return ["/".join(part[-3:]) for part in parts]
    differing = [place for place in range(len(parts[0])) if len({part[place] for part in parts}) > 1]
    return ["/".join(part[place] for place in differing) or "/".join(part[-3:]) for part in parts]
