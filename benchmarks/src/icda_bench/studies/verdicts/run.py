"""Run the proving ground case by case into a CSV file; what is there is not run again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from icda.auditing.assessment import assess
from icda.auditing.evidence import Evidence, gather_evidence, make_sketch
from icda.auditing.inputs import standardise
from icda.cross_fit.pairs import PairEvidence
from icda.data.registry import data_root
from icda.errors import InputError
from icda.heads.blocks import BlockRows
from icda_bench.options import Root, check_names
from icda_bench.rows import read_table, write_rows
from icda_bench.studies.verdicts.cases import Case, Plan, plant
from icda_bench.studies.verdicts.methods import fit_row
from icda_bench.studies.verdicts.plans import SYNTHETIC, fresh_plans, plans_of
from icda_bench.studies.verdicts.pools import POOLS, Pool, load_pool

ALL = (*POOLS, *SYNTHETIC)
CaseRow = dict[str, Any]


@dataclass
class Arguments:
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
    root: Root = None
    cache: Path = Path("runs/verdicts")
    """Folder for embeddings, computed once."""
    out: Path = Path("runs/verdicts/verdicts.csv")
    """CSV file to fill (benchmarks/results/verdicts.csv is ours); finished cases are kept."""
    treated: Path = Path("runs/verdicts/robust.csv")
    """The same of --treat (benchmarks/results/robust.csv is ours)."""
    left_out: Path = Path("runs/verdicts/verdicts_left_out.csv")
    """The answers of limits fitted without the set of each case (benchmarks/results/verdicts_left_out.csv is ours)."""


def run(options: Arguments) -> None:
    from icda_bench.studies.verdicts.judge import detail_table, left_out, left_out_table, regret_table, verdict_table

    check_names("pools", options.pools, ALL)
    root, pools = data_root(options.root), options.pools or ALL
    if options.fresh:
        plans = {name: fresh_plans(name, options.fresh) for name in pools}
        rows = run_rows(options.fresh_out, planted_cases(root, options.cache, plans), evidence_rows)
        print(verdict_table(rows), detail_table(rows), sep="\n\n")
        return
    plans = {name: plans_of(name)[: options.cases] for name in pools}
    rows = run_rows(options.out, planted_cases(root, options.cache, plans), evidence_rows)
    print(verdict_table(rows), detail_table(rows), sep="\n\n")
    if len(pools) > 1:
        write_rows(options.left_out, left_out(rows))
        print(left_out_table(read_table(options.left_out)))
    if options.treat:
        rows = run_rows(options.treated, planted_cases(root, options.cache, plans), lambda case: [fit_row(case)])
        print(regret_table(rows))


def run_rows(path: Path, planted: Iterable[Case], measure: Callable[[Case], Iterable[CaseRow]]) -> list[CaseRow]:
    """Measure each case that is not in the file, and write the file after each."""
    done: list[CaseRow] = [*read_table(path)]
    known = {(row["pool"], int(row["seed"])) for row in done}
    for case in planted:
        plan = case.plan
        if (plan.pool, plan.seed) not in known:
            done += [{**asdict(plan), "kind": plan.kind, **row} for row in measure(case)]
            write_rows(path, done)
            print(f"{plan.pool} {plan.seed}: {plan.kind}")
    return [*read_table(path)]


def planted_cases(root: Path | None, cache: Path, plans: dict[str, list[Plan]]) -> Iterator[Case]:
    """The first case of every pool, then the second, and so on."""
    loaded: dict[str, Pool] = {}
    for number in range(max(map(len, plans.values()))):
        for name in plans:
            if number < len(plans[name]):
                if name not in loaded:
                    loaded[name] = load_pool(name, root, cache)
                yield plant(loaded[name], plans[name][number])


def evidence_rows(case: Case) -> list[CaseRow]:
    """What the verdicts rest on, as one row, and whether other askings confirm a shortcut."""
    start = time.process_time()
    classes, codes = np.unique(case.targets, return_inverse=True)
    features, targets = torch.from_numpy(standardise(case.features)), torch.from_numpy(codes)
    try:
        found = assess(BlockRows.of_memory(features, targets, len(classes)))
        row = {**as_numbers(found.evidence), "confirmed": found.verdicts["shortcut"].answer == "yes"}
    except InputError:  # hardly two samples of any class: the audit refuses, the figures can still be had
        row = {**as_numbers(gather_evidence(make_sketch(features), targets, len(classes))), "confirmed": False}
    return [{**row, "features": case.features.shape[1], "seconds": round(time.process_time() - start, 2)}]


def as_numbers(evidence: Evidence) -> dict[str, Any]:
    """One flat row for a table: figures of pairs are joined by semicolons."""
    row = {
        key: value
        for key, value in evidence.as_dict().items()
        if key not in ("pairs", "class_counts", "predicted_counts", "sided")
    } | {f"sided_{key}": value for key, value in asdict(evidence.sided).items()}
    row["ratio"], row["predicted_ratio"], row["classes"] = (
        evidence.ratio,
        evidence.predicted_ratio,
        evidence.num_classes,
    )
    row["smallest_class"] = int(np.min(evidence.class_counts))
    for name in PairEvidence.__dataclass_fields__:
        if name != "classes":
            row[f"pair_{name}"] = ";".join(f"{getattr(pair, name):.5g}" for pair in evidence.pairs)
    return row
