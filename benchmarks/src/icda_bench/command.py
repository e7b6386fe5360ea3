"""`icda bench`"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from icda.cli.overview import overview
from icda.registry import did_you_mean
from icda.terminal import make_console

BENCHES = {
    "speed": "time and memory of losses against plain cross entropy, interleaved in one process",
    "meta": "meta-learning methods on three small tasks, and whether strengths find wrong labels",
    "embeddings": "every estimator and variant on features of real biased data",
    "tail-features": "losses and a Gaussian discriminant on frozen features of pictures with a long tail",
    "audit": "how well the audit finds minority groups and wrong labels, beside cleanlab",
    "verdicts": "whether the audit's verdicts are right on planted biases, and what RobustClassifier makes of them",
    "fit": "fit times beside LogisticRegression, and memory for features on disk",
    "strengths": "whether the strengths of finished runs know groups they were not told",
    "selection": "what each selection rule costs in the worst group, beside the rule that knows the groups",
    "figures": "train and draw the pictures of the documentation",
    "table2": "the paper's Table 2: long-tailed CIFAR",
    "table3": "the paper's Table 3: what ICDA adds to a training step of seven networks",
    "table4": "the paper's Table 4: CIFAR with wrong labels",
    "table6": "the paper's Table 6: subpopulation shift",
    "table7": "the paper's Table 7: generalised long tails, ImageNet-GLT",
    "table8": "the paper's Table 8: generalised long tails, MSCOCO-GLT",
    "table9": "the paper's Table 9: standard CIFAR",
    "imagenet-lt": "the paper's ImageNet-LT figure: heads on cached features",
    "gain": "where ICDA's gain over LA lives: depth, length, lambda0, stale statistics",
    "shortcut": "whether a larger sample margin takes ICDA off a shortcut",
    "text": "film reviews whose sentiment people reversed: a table of our own",
    "noise": "wrong labels on digits and 5,000 images of MNIST: a table of our own",
    "ablation": "the paper's ablation: ICDA without each of its parts",
    "sensitivity": "the paper's sensitivity test: lambda0 and beta",
}


@dataclass
class SpeedArguments:
    """Measure training steps and heads, ICDA and cross entropy taking turns in one process."""

    steps: int = 15
    """Timed steps of each method; the median is reported."""
    model: str = "resnet32"
    """Network of the whole-step measurement."""
    batch_size: int = 128
    """Its batch size."""
    grid: bool = True
    """Measure the table over classes and features too."""
    meta: bool = False
    """Measure Meta-ICDA's look-ahead instead, beside the textbook's double backward."""
    out: Path | None = None
    """CSV file to write (benchmarks/results/speed.csv is ours)."""


@dataclass
class MetaArguments:
    """Train ICDA, Meta-ICDA, MetaSAug, Meta-Weight-Net and LSDA on three small tasks with one recipe."""

    seeds: int = 3
    """Runs of each method on each task."""
    epochs: int = 30
    """Passes over the training set in each run."""
    out: str = "runs/meta"
    """Folder for all files; finished runs are kept."""
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Runs at the same time, each on one core; all cores by default."""
    ledger: Path | None = None
    """CSV file to write one row per run to (benchmarks/results/meta.csv is ours)."""
    separation: Path | None = None
    """CSV file for the AUROC of wrong labels (benchmarks/results/meta_separation.csv is ours)."""


ONE_PIECE = ("speed", "audit", "fit", "strengths", "table3")  # these keep nothing before they end


def main(arguments: Sequence[str]) -> int:
    """rerun the paper's tables, and measure speed, memory and estimators"""
    try:
        return _main(arguments)
    except KeyboardInterrupt as interrupt:
        if not arguments or arguments[0] in ONE_PIECE:
            raise
        raise KeyboardInterrupt("The same command goes on where it stopped.") from interrupt


def _main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: icda bench NAME [OPTIONS]\n")
        print(overview(BENCHES))
        return 0
    if arguments[0] not in BENCHES:
        hint = did_you_mean(arguments[0], BENCHES)
        print(f"icda: unknown bench {arguments[0]!r}: {hint}Known: {', '.join(BENCHES)}.", file=sys.stderr)
        return 2
    measured = {"speed": _speed, "meta": _meta}
    if arguments[0] in measured:
        return measured[arguments[0]](arguments[1:])
    if arguments[0] in ("embeddings", "tail-features", "audit", "verdicts", "fit", "strengths", "selection", "figures"):
        from icda_bench.commands import estimators as bench_estimators

        return int(getattr(bench_estimators, arguments[0].replace("-", "_"))(arguments[1:]))
    from icda_bench.commands.suite import main as run_suite  # takes seconds to import, which a list of names should not

    return run_suite(arguments[0], arguments[1:])


def _speed(arguments: Sequence[str]) -> int:
    options = tyro.cli(SpeedArguments, args=list(arguments), prog="icda bench speed")
    from icda_bench.cost.meta_speed import measure_meta_speed, to_meta_table
    from icda_bench.cost.rows import write_csv
    from icda_bench.cost.speed import measure_speed, to_table

    console = make_console()
    if options.meta:
        meta_rows = measure_meta_speed(options.model, options.batch_size, 10, options.steps)
        console.print(to_meta_table(meta_rows))
        if options.out is not None:
            write_csv(meta_rows, options.out)
            console.print(f"Written to {options.out}", highlight=False)
        return 0
    rows = measure_speed(options.model, options.batch_size, options.steps, options.grid, console.print)
    console.print(to_table(rows))
    if options.out is not None:
        write_csv(rows, options.out)
        console.print(f"Written to {options.out}", highlight=False)
    return 0


def _meta(arguments: Sequence[str]) -> int:
    options = tyro.cli(MetaArguments, args=list(arguments), prog="icda bench meta")
    from icda.report import comparison_table, to_rich
    from icda.results.ledger import to_row, write_ledger
    from icda_bench.cost.rows import write_csv
    from icda_bench.studies.meta_learning import noise_separation, run_meta_grid

    console = make_console()
    results = run_meta_grid(options.out, options.seeds, options.epochs, options.jobs, console)
    console.print(to_rich(comparison_table(results, ("accuracy", "worst_class_accuracy", "worst_group_accuracy"))))
    separations = [
        noise_separation(Path(f"{options.out}/digits_flip_noise/meta_icda/seed{seed}")) for seed in range(options.seeds)
    ]
    for separation in separations:
        console.print(f"wrong labels found by {separation}", highlight=False)
    if options.ledger is not None:
        write_ledger(options.ledger, (to_row(result, "demo") for result in results))
    if options.separation is not None:
        write_csv(separations, options.separation)
    return 0
