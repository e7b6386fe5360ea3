"""`icda report`"""

import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from icda.cli.output import say
from icda.errors import InputError, OperationError
from icda.report import FoundRun, find_unfinished, read_folder, read_runs, write_report
from icda.report.results import run_title
from icda.results.files import EXPLANATIONS, REPORT, RESULT, write_json
from icda.training.run import load_folder


@dataclass
class ReportArguments:
    """Make one page to look at from runs that are finished: one run in depth, or several side by side."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs, folders with runs below them, result.json files, or a ledger's CSV."""
    out: Path = Path(REPORT)
    """The page; one file, nothing beside it."""
    open: bool = False
    """Show the page in the browser."""
    explain: Literal["all", "quick", "none"] = "none"
    """Explanations to make first where a run lacks them: quick (margins, strengths, tied samples), all (also mapped
    variances, Grad-CAM and counterfactual pictures). none shows what is there."""
    allow_hub: bool = False
    """Fetch a model that the run's file names (hf:, timm:) from its hub, if it is not on this machine."""


def main(arguments: Sequence[str]) -> int:
    options = tyro.cli(ReportArguments, args=list(arguments), prog="icda report")
    if not options.runs:
        raise InputError("icda report needs at least one run: icda report runs/digits_lt/icda/seed0")
    runs = read_runs(options.runs)
    for folder in find_unfinished(options.runs):
        say(f"Left out: {folder}, which has no result (cut off, or diverged).")
    if options.explain != "none":
        from icda.explain.run import CHEAP_PARTS, PARTS

        parts = PARTS if options.explain == "all" else CHEAP_PARTS
        runs = [explain_missing(run, parts, options.allow_hub) for run in runs]
    page = write_report(options.out, [run.result for run in runs], [run.explanations for run in runs])
    say(f"Report of {len(runs)} run{'' if len(runs) == 1 else 's'}: {page}")
    if options.open and not webbrowser.open(page.resolve().as_uri()):
        raise OperationError(f"no browser could be started: open {page} yourself.")
    return 0


def explain_missing(run: FoundRun, wanted: Sequence[str], allow_hub: bool = False) -> FoundRun:
    """Make the parts of a run's explanations that are not there yet, as far as its task has them, and keep them."""
    from icda.explain.run import allowed_parts, explain_run

    if run.folder is None:
        raise InputError(
            f"explaining {run_title(run.result)} needs its trained model: give the folder of the run, not a ledger or a "
            f"copy of {RESULT}."
        )
    known = dict(run.explanations or {})
    missing = [part for part in wanted if part not in known]
    if not missing:
        return run
    _, task, networks, method = load_folder(run.folder, allow_hub=allow_hub)
    parts = allowed_parts(missing, task)
    if not parts:
        return run
    say(f"Explaining {run.folder}: {', '.join(parts)}")
    split, history = str(known.get("split", "test")), run.result.history or ()
    explanations = explain_run(task, networks, method, parts=parts, split=split, history=history)
    write_json(run.folder / EXPLANATIONS, known | explanations)
    return read_folder(run.folder)
