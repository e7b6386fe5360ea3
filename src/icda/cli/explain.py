"""`icda explain`"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from icda.cli.output import check_seed, say
from icda.errors import InputError
from icda.explain.figures import FigureOptions, TrainedRun, check_suffix, make_figure
from icda.explain.run import PARTS, allowed_parts, explain_run
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
    allow_hub: bool = False
    """Fetch a model that the run's file names (hf:, timm:) from its hub, if it is not on this machine."""


def main(arguments: Sequence[str]) -> int:
    options = tyro.cli(ExplainArguments, args=list(arguments), prog="icda explain")
    if not options.runs:
        raise InputError("icda explain needs the folder of at least one run: icda explain runs/digits_lt/icda/seed0")
    if options.samples < 1 or options.measured < 1:
        raise InputError(f"--samples and --measured must be positive, got {options.samples} and {options.measured}.")
    check_seed(options.seed)
    if options.figure is None:
        if options.out is not None:
            raise InputError(f"--out {options.out} without --figure: say which figure to draw.")
        for folder in options.runs:
            say(f"Explanations: {explain_folder(folder, options)}")
        return 0
    if options.out is None:
        raise InputError(f"--figure {options.figure} needs --out FILE.png, .pdf or .svg.")
    if options.parts:
        raise InputError("--parts belongs to explanations.json, --figure to a picture: give one of them.")
    check_suffix(options.out)  # before any model is loaded
    labels = run_labels(options.runs)
    runs = [load_run(folder, label, options.allow_hub) for folder, label in zip(options.runs, labels, strict=True)]
    figure_options = FigureOptions(options.split, options.samples, options.measured, options.seed, options.layer)
    for path in make_figure(options.figure, runs, options.out, figure_options):
        say(f"Written: {path}")
    return 0


def explain_folder(folder: Path, options: ExplainArguments) -> Path:
    """Write the parts into the folder's explanations.json; parts that are there already and not asked for stay."""
    run = load_run(folder, str(folder), options.allow_hub)
    parts = options.parts or allowed_parts(PARTS, run.task)
    explanations = explain_run(
        run.task, run.networks, run.method, parts=parts, split=options.split, seed=options.seed, history=run.history
    )
    path = folder / EXPLANATIONS
    earlier = read_json(path) if path.is_file() else {}
    # Margins of one split beside heat of another would mislead.
    if earlier.get("split", options.split) != options.split:
        print(f"icda: {path} was of the {earlier['split']} split; its parts are replaced.", file=sys.stderr)
        earlier = {}
    write_json(path, earlier | explanations)
    return path


def load_run(folder: Path, label: str, allow_hub: bool = False) -> TrainedRun:
    """The trained model of a folder, with the epochs of its result."""
    _, task, networks, method = load_folder(folder, allow_hub=allow_hub)
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
