"""`icda demo`"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from icda.cli.report import explain_missing
from icda.explain.run import CHEAP_PARTS, PARTS
from icda.report import FoundRun, comparison_table, read_folder, to_rich, write_report
from icda.results import RunResult
from icda.results.files import REPORT
from icda.results.ledger import to_row, write_ledger
from icda.terminal import make_console
from icda.training import TrainConfig
from icda.training.grid import run_grid

TASKS = {
    "digits_lt": "Long tail: training images of a class fall from 104 to 2, all classes count the same at test time.",
    "digits_flip_noise": "Wrong labels: 40 % of the training labels are turned into one of two other digits.",
    "digits_coloured": "Shortcut: in training the colour gives the class away in 95 % of cases, at test time never.",
    "digits": "Clean: the same digits with nothing wrong. A method for the other three should lose nothing here.",
}
METHODS = ("cross_entropy", "logit_adjustment", "isda", "icda", "meta_icda", "robust")
PICTURED = ("cross_entropy", "robust")  # whose first seed gets Grad-CAM and counterfactual pictures, side by side


@dataclass
class DemoArguments:
    """Compare CE, LA, ISDA, ICDA, Meta-ICDA and robust on three small biased tasks made from digits, and on a clean one."""

    seeds: int = 3
    """Runs of each method on each task."""
    epochs: int = 30
    """Passes over the training set in each run."""
    quick: bool = False
    """See whether all works: one seed, three epochs, folder runs/demo-quick. Too short to compare methods by."""
    out: str = "runs/demo"
    """Folder for all files."""
    fresh: bool = False
    """Run everything again; by default finished runs are kept."""
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Runs at the same time, each on one core; all cores by default."""
    ledger: Path | None = None
    """CSV file to write one row per run to (benchmarks/results/demo.csv is ours)."""


QUICK = DemoArguments(seeds=1, epochs=3, out="runs/demo-quick")


def main(arguments: Sequence[str]) -> int:
    default = QUICK if "--quick" in arguments else DemoArguments()  # options given beside --quick win
    options = tyro.cli(DemoArguments, args=list(arguments), default=default, prog="icda demo")
    console = make_console()
    if options.quick:
        console.print(
            f"A quick look, {options.seeds} seed(s) of {options.epochs} epochs: the figures below are too early to compare "
            "methods by. `icda demo` trains in full.",
            highlight=False,
        )
    started = time.perf_counter()
    recipe = TrainConfig(epochs=options.epochs, out=f"{options.out}/{{task}}/{{method}}/seed{{seed}}")
    results = run_grid(recipe, list(TASKS), METHODS, options.seeds, console, options.fresh, options.jobs)
    runs = explain_demo(options.out, options.seeds)
    report = write_report(f"{options.out}/{REPORT}", [run.result for run in runs], [run.explanations for run in runs])
    if options.ledger is not None:
        write_ledger(options.ledger, (to_row(result, "demo") for result in results))
    for task, story in TASKS.items():
        rows = [result for result in results if result["task"] == task]
        console.print()
        console.print(f"[bold]{task}[/bold]  {story}", highlight=False)
        metrics = ("accuracy", "worst_group_accuracy" if task == "digits_coloured" else "worst_class_accuracy")
        console.print(to_rich(comparison_table(rows, metrics)))
    console.print()
    console.print(
        f"{len(results)} models in {time.perf_counter() - started:.0f} s, one folder each under {options.out}/"
    )
    console.print(f"The page to open in a browser: {report}", highlight=False)
    console.print("Your own data next: icda train --data FOLDER_OR_CSV --method robust", highlight=False)
    for line in findings(results):
        console.print(line, highlight=False)
    return 0


def findings(results: Sequence[RunResult]) -> list[str]:
    """What the method that decides for itself found on each task, in words: of the first seed."""
    found = {result.task: result.found for result in reversed(results) if result.found}
    return [
        "What robust found, given images and labels only (seed 0):",
        *(f"  {task}: {found[task]}" for task in TASKS),
    ]


def explain_demo(out: str, seeds: int) -> list[FoundRun]:
    """All runs of the demo with their explanations; those of `PICTURED` also with pictures."""
    runs = []
    for task in TASKS:
        for method in METHODS:
            for seed in range(seeds):
                parts = PARTS if seed == 0 and method in PICTURED else CHEAP_PARTS
                runs.append(explain_missing(read_folder(Path(out) / task / method / f"seed{seed}"), parts))
    return runs
