"""Do meta-learning methods learn what they are for? Small tasks, one recipe, and what the strengths say of wrong labels."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from icda.report import comparison_table, to_rich
from icda.results.ledger import to_row, write_ledger
from icda.terminal import make_console
from icda.training import TrainConfig
from icda.training.grid import run_grid
from icda_bench.markdown import markdown, numbers, spread
from icda_bench.options import all_cores
from icda_bench.rows import Row, publish
from icda_bench.studies.finished_runs import noise_separation

TASKS = ("digits_lt", "digits_flip_noise", "digits_coloured")
METHODS = ("icda", "meta_icda", "meta_icda_signed", "metasaug", "meta_weight_net", "lsda")


@dataclass
class Arguments:
    """Train ICDA, Meta-ICDA, MetaSAug, Meta-Weight-Net and LSDA on three small tasks with one recipe."""

    seeds: int = 3
    """Runs of each method on each task."""
    epochs: int = 30
    """Passes over the training set in each run."""
    out: str = "runs/meta"
    """Folder for all files; finished runs are kept."""
    jobs: int = field(default_factory=all_cores)
    """Runs at the same time, each on one core; all cores by default."""
    ledger: Path | None = None
    """CSV file to write one row per run to (benchmarks/results/meta.csv is ours)."""
    separation: Path | None = None
    """CSV file for the AUROC of wrong labels (benchmarks/results/meta_separation.csv is ours)."""


def run(options: Arguments) -> None:
    console = make_console()
    recipe = TrainConfig(epochs=options.epochs, out=f"{options.out}/{{task}}/{{method}}/seed{{seed}}")
    results = run_grid(recipe, TASKS, METHODS, options.seeds, console, jobs=options.jobs)
    console.print(to_rich(comparison_table(results, ("accuracy", "worst_class_accuracy", "worst_group_accuracy"))))
    folder = Path(options.out) / "digits_flip_noise/meta_icda"
    separations = [noise_separation(folder / f"seed{seed}") for seed in range(options.seeds)]
    publish(separation_table, separations, options.separation)
    if options.ledger is not None:
        write_ledger(options.ledger, (to_row(result, "demo") for result in results))


def separation_table(rows: Sequence[Row]) -> str:
    """How well numbers about a training sample find wrong labels: AUROC, mean ± standard deviation over seeds."""
    names = {"low_learned_strength": "learned strength, low", "direct_strength": "strength by angle", "loss": "loss"}
    body = [[title, spread(numbers(rows, name), digits=3)] for name, title in names.items()]
    return markdown(["number about a sample", "AUROC for wrong labels"], body)
