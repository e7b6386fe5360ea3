"""Run the proving ground case by case into a CSV file; what is there is not run again."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
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
from icda.settings import check_names
from icda_bench.options import Root
from icda_bench.rows import Row, fill, read_table, write_rows
from icda_bench.studies.verdicts.cases import Case, Plan, plant
from icda_bench.studies.verdicts.methods import fit_row
from icda_bench.studies.verdicts.plans import SYNTHETIC, fresh_plans, plans_of
from icda_bench.studies.verdicts.pools import POOLS, load_pool

ALL = (*POOLS, *SYNTHETIC)


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

    check_names(options.pools, ALL, "icda bench verdicts", "pool")
    where, pools = (data_root(options.root), options.cache), options.pools or ALL
    if options.fresh:
        plans = {name: fresh_plans(name, options.fresh) for name in pools}
    else:
        plans = {name: plans_of(name)[: options.cases] for name in pools}
    rows = fill_cases(options.fresh_out if options.fresh else options.out, plans, evidence_row, *where)
    print(verdict_table(rows), detail_table(rows), sep="\n\n")
    if options.fresh:
        return
    if len(pools) > 1:
        write_rows(options.left_out, left_out(rows))
        print(left_out_table(read_table(options.left_out)))
    if options.treat:
        print(regret_table(fill_cases(options.treated, plans, fit_row, *where)))


def fill_cases(
    path: Path,
    plans: Mapping[str, Sequence[Plan]],
    measure: Callable[[Case], Row | list[Row]],
    root: Path | None = None,
    cache: Path = Path(),
) -> list[dict[str, str]]:
    """Measure each planted case that the file lacks: the first of every pool, then the second, and so on."""
    load = functools.cache(lambda pool: load_pool(pool, root, cache))
    cells = {(plan.pool, plan.seed): plan for turn in zip_longest(*plans.values()) for plan in turn if plan is not None}

    def measured(pool: str, seed: int) -> list[Row]:
        plan = cells[pool, seed]
        found = measure(plant(load(pool), plan))
        return [{**asdict(plan), "kind": plan.kind, **row} for row in (found if isinstance(found, list) else [found])]

    return fill(path, ("pool", "seed"), cells, measured)


def evidence_row(case: Case) -> Row:
    """What the verdicts rest on, and whether other askings confirm a shortcut."""
    start = time.process_time()
    classes, codes = np.unique(case.targets, return_inverse=True)
    features, targets = torch.from_numpy(standardise(case.features)), torch.from_numpy(codes)
    try:
        found = assess(BlockRows.of_memory(features, targets, len(classes)))
        row = {**as_numbers(found.evidence), "confirmed": found.verdicts["shortcut"].answer == "yes"}
    except InputError:  # hardly two samples of any class: the audit refuses, the figures can still be had
        row = {**as_numbers(gather_evidence(make_sketch(features), targets, len(classes))), "confirmed": False}
    return {**row, "features": case.features.shape[1], "seconds": round(time.process_time() - start, 2)}


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
