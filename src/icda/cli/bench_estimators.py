"""`icda bench embeddings`, `tail-features`, `audit`, `verdicts`, `fit`, ...: what is measured outside the suites"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from icda.data.registry import data_root
from icda.errors import InputError
from icda.terminal import make_console

ROOT = Annotated[str | None, tyro.conf.arg(help="Where datasets lie; ICDA_DATA, or ./data, if not given.")]


@dataclass
class EmbeddingsArguments:
    """Fit every loss and variant on features of Waterbirds, Adult, COMPAS and film reviews; finished cells are kept."""

    sets: tuple[str, ...] = ()
    """Only these sets: waterbirds, adult, compas, cad_imdb."""
    methods: tuple[str, ...] = ()
    """Only these rows of the table."""
    seeds: int = 5
    """Seeds of each row: folds, splits where there is no official one, and what is learned."""
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Sets and seeds at the same time, each on one core."""
    root: ROOT = None
    cache: Path = Path("runs/embeddings")
    """Folder for embeddings of texts, computed once."""
    out: Path = Path("runs/embeddings/embeddings.csv")
    """CSV file to fill (benchmarks/results/embeddings.csv is ours)."""


@dataclass
class TailFeaturesArguments:
    """Fit heads on EfficientNet-Lite0's features of long-tailed CIFAR-10 and Tiny ImageNet; finished cells are kept."""

    sets: tuple[str, ...] = ()
    """Only these sets: cifar10_lt_100, cifar10_lt_10, tiny_imagenet_lt."""
    methods: tuple[str, ...] = ()
    """Only these rows of the table."""
    seeds: int = 5
    """Seeds of each row: which images make tail and validation data (CIFAR-10), or the split of the balanced images."""
    root: ROOT = None
    cache: Path = Path("runs/tail_features")
    """Folder for the features, computed once (41,000 images, about five minutes on one core)."""
    out: Path = Path("runs/tail_features/tail_features.csv")
    """CSV file to fill (benchmarks/results/tail_features.csv is ours)."""


@dataclass
class AuditBenchArguments:
    """How well the audit finds Waterbirds' minority groups and flipped labels of digits, beside cleanlab."""

    root: ROOT = None
    out: Path | None = None
    """CSV file to write (benchmarks/results/audit.csv is ours)."""


@dataclass
class FitArguments:
    """Fit times beside scikit-learn's LogisticRegression, taking turns in one process."""

    rounds: int = 3
    """Fits of each; the median is reported."""
    root: ROOT = None
    out: Path | None = None
    """CSV file to write (benchmarks/results/fit_time.csv is ours)."""
    large: Path | None = None
    """Measure memory instead: a folder for a file of 1,000,000 x 512 numbers (2 GiB), fitted from disk."""


@dataclass
class StrengthsArguments:
    """Read the strengths of the training samples off finished runs, group by group."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished runs on a task with groups."""
    out: Path | None = None
    """CSV file to write (benchmarks/results/group_strengths.csv is ours)."""


@dataclass
class SelectionArguments:
    """Train rows of table 6 once each, and ask every selection rule which epoch it would have taken."""

    methods: tuple[str, ...] = ("cross_entropy", "logit_adjustment", "icda", "jtt", "xrm", "shortcut_prior")
    """Methods that read no groups."""
    tasks: tuple[str, ...] = ("digits_coloured",)
    """Tasks of table 6, tier cpu, with validation groups."""
    seeds: int = 3
    """Runs of each method on each task."""
    root: ROOT = None
    out: Path = Path("runs/selection")
    """Folder for the runs."""
    ledger: Path | None = None
    """CSV file that gets the rows of a run as soon as it is finished (benchmarks/results/selection.csv is ours); runs that
    it has are not made again."""


@dataclass
class FiguresArguments:
    """Train CE, ISDA, RISDA and ICDA with one recipe, and draw margins, variances, Grad-CAM and counterfactuals."""

    waterbirds: bool = True
    """Also the pictures of Waterbirds at 64 pixels, which take about ten minutes of training."""
    root: ROOT = None
    out: Path = Path("runs/figures")
    """Folder for the runs; finished ones are kept."""
    pictures: Path = Path("runs/figures")
    """Folder for the pictures (docs/figures is ours)."""
    tables: Path = Path("runs/figures")
    """Folder for their numbers (benchmarks/results is ours)."""


@dataclass
class VerdictsArguments:
    """Plant shortcuts, wrong labels and tails in features of real and synthetic sets; ask the audit about each."""

    pools: tuple[str, ...] = ()
    """Only these pools, such as digits, waterbirds or gaussian3; by default all."""
    treat: bool = False
    """Also fit RobustClassifier and what it is compared with, and judge them on the unbiased test part: takes longer."""
    cases: int | None = None
    """Only so many cases of each pool; the first show every kind."""
    fresh: int = 0
    """Instead, so many cases of each pool drawn at random, on which no limit was set (ours: 40)."""
    fresh_out: Path = Path("runs/verdicts/verdicts_fresh.csv")
    """CSV file of --fresh (benchmarks/results/verdicts_fresh.csv is ours)."""
    root: ROOT = None
    cache: Path = Path("runs/verdicts")
    """Folder for embeddings, computed once."""
    out: Path = Path("runs/verdicts/verdicts.csv")
    """CSV file to fill (benchmarks/results/verdicts.csv is ours); finished cases are kept."""
    treated: Path = Path("runs/verdicts/robust.csv")
    """The same of --treat (benchmarks/results/robust.csv is ours)."""
    left_out: Path = Path("runs/verdicts/verdicts_left_out.csv")
    """The answers of limits fitted without the set of each case (benchmarks/results/verdicts_left_out.csv is ours)."""


def embeddings(arguments: Sequence[str]) -> int:
    options = tyro.cli(EmbeddingsArguments, args=list(arguments), prog="icda bench embeddings")
    from icda.bench.estimator_tables import embeddings_table
    from icda.bench.studies.embeddings.methods import ROWS
    from icda.bench.studies.embeddings.run import run_table
    from icda.bench.studies.embeddings.sets import SETS

    _check_names(options, SETS, [row.name for row in ROWS])
    root, sets = data_root(options.root), options.sets or tuple(SETS)
    run_table(options.out, root, options.cache, sets, options.methods, options.seeds, options.jobs)
    print(embeddings_table(options.out))
    return 0


def tail_features(arguments: Sequence[str]) -> int:
    options = tyro.cli(TailFeaturesArguments, args=list(arguments), prog="icda bench tail-features")
    from icda.bench.studies.tail_features.heads import ROWS
    from icda.bench.studies.tail_features.run import run_tail_features, tail_tables
    from icda.bench.studies.tail_features.sets import SETS

    _check_names(options, SETS, [row.name for row in ROWS])
    root, sets = data_root(options.root), options.sets or tuple(SETS)
    rows = run_tail_features(options.out, root, options.cache, sets, options.methods, options.seeds)
    print(tail_tables(rows))
    return 0


def _check_names(
    options: EmbeddingsArguments | TailFeaturesArguments, sets: Iterable[str], methods: Iterable[str]
) -> None:
    for name, known in (("sets", list(sets)), ("methods", list(methods))):
        unknown = [value for value in getattr(options, name) if value not in known]
        if unknown:
            raise InputError(f"unknown {name}: {', '.join(unknown)}. Known: {', '.join(known)}.")


def audit(arguments: Sequence[str]) -> int:
    options = tyro.cli(AuditBenchArguments, args=list(arguments), prog="icda bench audit")
    from icda.bench.cost.rows import write_csv
    from icda.bench.studies.audit import measure_audit, to_audit_table

    rows = measure_audit(options.root)
    make_console().print(to_audit_table(rows))
    if options.out is not None:
        write_csv(rows, options.out)
    return 0


def fit(arguments: Sequence[str]) -> int:
    options = tyro.cli(FitArguments, args=list(arguments), prog="icda bench fit")
    from icda.bench.cost.rows import write_csv

    if options.large is not None:
        from icda.bench.cost.large_fit import measure_large_fit

        large = measure_large_fit(folder=options.large)
        print(*large, sep="\n")
        if options.out is not None:
            write_csv(large, options.out)
        return 0
    from icda.bench.cost.fit_time import measure_fit_time

    rows = measure_fit_time(data_root(options.root), rounds=options.rounds)
    print(*rows, sep="\n")
    if options.out is not None:
        write_csv(rows, options.out)
    return 0


def strengths(arguments: Sequence[str]) -> int:
    options = tyro.cli(StrengthsArguments, args=list(arguments), prog="icda bench strengths")
    from icda.bench.cost.rows import write_csv
    from icda.bench.studies.group_strengths import measure_group_strengths

    if not options.runs:
        raise InputError("name the folders of finished runs, such as runs/bench/cpu/cmnist/icda/seed0-*.")
    rows = measure_group_strengths(options.runs)
    print(*rows, sep="\n")
    if options.out is not None:
        write_csv(rows, options.out)
    return 0


def selection(arguments: Sequence[str]) -> int:
    options = tyro.cli(SelectionArguments, args=list(arguments), prog="icda bench selection")
    from icda.bench.cost.rows import append_csv
    from icda.bench.studies.selection_rules import compare_table6, read_rule_rows, selection_table

    kept = options.ledger is not None and options.ledger.exists()
    rows = read_rule_rows(options.ledger) if kept and options.ledger is not None else []
    done = {row.run for row in rows}
    for of_run in compare_table6(options.methods, options.tasks, options.seeds, options.out, options.root, done):
        rows += of_run
        if options.ledger is not None:
            append_csv(of_run, options.ledger)
    print(selection_table(rows))
    return 0


def figures(arguments: Sequence[str]) -> int:
    options = tyro.cli(FiguresArguments, args=list(arguments), prog="icda bench figures")
    from icda.bench.studies.figures import make_figures

    for path in make_figures(
        options.out, options.root, options.pictures, options.tables, waterbirds=options.waterbirds
    ):
        print(path)
    return 0


def verdicts(arguments: Sequence[str]) -> int:
    options = tyro.cli(VerdictsArguments, args=list(arguments), prog="icda bench verdicts")
    from icda.bench.studies.verdicts.fit import left_out, left_out_table
    from icda.bench.studies.verdicts.judge import detail_table, regret_table, verdict_table
    from icda.bench.studies.verdicts.run import ALL, run_evidence, run_fresh, run_treated, write_rows

    unknown = [name for name in options.pools if name not in ALL]
    if unknown:
        raise InputError(f"unknown pools: {', '.join(unknown)}. Known: {', '.join(ALL)}.")
    root, pools = data_root(options.root), options.pools or ALL
    if options.fresh:
        run_fresh(options.fresh_out, root, options.cache, pools, options.fresh)
        print(verdict_table(options.fresh_out), detail_table(options.fresh_out), sep="\n\n")
        return 0
    run_evidence(options.out, root, options.cache, pools, options.cases)
    print(verdict_table(options.out), detail_table(options.out), sep="\n\n")
    if len(pools) > 1:
        write_rows(options.left_out, left_out(options.out))
        print(left_out_table(options.left_out))
    if options.treat:
        run_treated(options.treated, root, options.cache, pools, options.cases)
        print(regret_table(options.treated))
    return 0
