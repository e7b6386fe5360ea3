"""The tables of README and docs, made from the CSV files in benchmarks/results.

    python -m icda_bench.tables README.md docs/*.md            # write
    python -m icda_bench.tables --check README.md docs/*.md    # fail when a page and its CSV disagree

A page marks a table with `<!-- table: NAME -->` and `<!-- end of table -->`; what stands between is generated.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from icda.errors import InputError
from icda.results.ledger import read_ledger
from icda_bench.cost.network_cost import cost_table, read_costs
from icda_bench.estimator_tables import (
    BLOCK_FIT,
    CORES,
    FAULTS,
    FIT_TIME,
    HEADLINE_COLUMNS,
    HEADLINE_ROWS,
    LARGE_FIT,
    audit_table,
    csv_table,
    embeddings_table,
)
from icda_bench.ledger_cost import ledger_cost_table
from icda_bench.markdown import markdown, spread
from icda_bench.paper_claims import claims_table
from icda_bench.studies.best_epoch import BestEpochRow, best_epoch_table
from icda_bench.studies.embeddings.methods import BY_CLASS
from icda_bench.studies.few_metadata import FewMetadataRow, few_metadata_table
from icda_bench.studies.group_strengths import group_strengths_table
from icda_bench.studies.long_training import LongTrainingRow, long_training_table
from icda_bench.studies.row_file import read_row_file
from icda_bench.studies.selection_rules import read_rule_rows, selection_table
from icda_bench.studies.shortcut_and_noise import ShortcutAndNoiseRow, shortcut_and_noise_table
from icda_bench.studies.stability import read_stability, stability_table
from icda_bench.studies.tail_features.run import TailRow, tail_tables
from icda_bench.studies.verdicts.fit import left_out_table
from icda_bench.studies.verdicts.judge import detail_table, regret_table, verdict_table
from icda_bench.suites.suite import SUITES, load_suite
from icda_bench.suites.suite_table import suite_rows, suite_table

RESULTS = Path("benchmarks/results")
_MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

SHORT_NAMES = {
    "cross_entropy": "CE",
    "logit_adjustment": "LA",
    "isda": "ISDA",
    "risda": "RISDA",
    "icda": "ICDA",
    "meta_weight_net": "Meta-Weight-Net",
    "metasaug": "MetaSAug",
    "lsda": "LSDA",
    "meta_icda": "Meta-ICDA",
    "meta_icda_signed": "Meta-ICDA, signed",
    "shortcut_prior": "Shortcut prior",
}


SMALL_TASKS = {
    "digits_lt": ("long tail, accuracy", "accuracy"),
    "digits_flip_noise": ("40 % wrong labels, accuracy", "accuracy"),
    "digits_coloured": ("spurious colour, worst group", "worst_group_accuracy"),
}


def demo_table(results: Path = RESULTS) -> str:
    """What `icda demo` measured: mean ± standard deviation over seeds, in per cent."""
    return _small_tasks(read_ledger(results / "demo.csv"))


def meta_table(results: Path = RESULTS) -> str:
    """What `icda bench meta` measured."""
    return _small_tasks(read_ledger(results / "meta.csv"))


def separation_table(results: Path = RESULTS) -> str:
    """How well numbers about a training sample find wrong labels: AUROC, mean ± standard deviation over seeds."""
    rows = _read(results / "meta_separation.csv")
    names = {"low_learned_strength": "learned strength, low", "direct_strength": "strength by angle", "loss": "loss"}
    body = [[title, spread([float(row[name]) for row in rows], digits=3)] for name, title in names.items()]
    return markdown(["number about a sample", "AUROC for wrong labels"], body)


def meta_speed_table(results: Path = RESULTS) -> str:
    """What `icda bench speed --meta` measured."""
    titles = {
        "what": "network",
        "way": "way",
        "classes": "C",
        "batch": "N",
        "ms": "ms",
        "ratio": "time ratio",
        "quartiles": "quartiles",
        "limit_ratio": "products alone",
        "memory_ratio": "peak memory ratio",
    }
    return _chosen(_read(results / "meta_speed.csv"), titles)


def speed_table(results: Path = RESULTS) -> str:
    """What `icda bench speed` measured."""
    titles = {
        "what": "what",
        "method": "loss",
        "covariance": "covariance",
        "classes": "C",
        "features": "A",
        "batch": "N",
        "base_ms": "CE, ms",
        "method_ms": "loss, ms",
        "ratio": "ratio",
        "limit_ms": "products alone, ms",
        "extra_mib": "extra MiB",
    }
    return _chosen(_read(results / "speed.csv"), titles)


def large_head_table(results: Path = RESULTS) -> str:
    """What `python -m icda_bench.cost.large_head` measured."""
    titles = {
        "way": "loss",
        "classes": "C",
        "features": "A",
        "ms": "ms per step",
        "peak_mib": "peak MiB of the process",
        "bytes_per_number": "bytes per weight",
    }
    return _chosen(_read(results / "large_head.csv"), titles)


def _chosen(rows: list[dict[str, str]], titles: dict[str, str]) -> str:
    """Columns by their titles; those that a file of an earlier version does not have are left out."""
    names = [name for name in titles if name in rows[0]]
    return markdown([titles[name] for name in names], [[row[name] for name in names] for row in rows])


def paper_table(name: str, results: Path = RESULTS) -> str:
    """A table of the paper beside what `icda bench` measured for it; rows without a measurement say so."""
    return suite_table(load_suite(name), suite_rows(name, results))


def table3(results: Path = RESULTS) -> str:
    """What `icda bench table3` measured."""
    return cost_table(read_costs(results / "table3.csv"))


TABLES: dict[str, Callable[[], str]] = {
    "demo": demo_table,
    "meta": meta_table,
    "separation": separation_table,
    "speed": speed_table,
    "meta-speed": meta_speed_table,
    "large-head": large_head_table,
    "table3": table3,
    "embeddings": lambda: embeddings_table(RESULTS / "embeddings.csv"),
    "embeddings-accuracy": lambda: embeddings_table(RESULTS / "embeddings.csv", "accuracy"),
    "embeddings-headline": lambda: embeddings_table(
        RESULTS / "embeddings.csv", only=HEADLINE_ROWS, places=HEADLINE_COLUMNS, left_out=BY_CLASS
    ),
    "audit": lambda: audit_table(RESULTS / "audit.csv"),
    "verdicts": lambda: verdict_table(RESULTS / "verdicts.csv"),
    "verdicts-fresh": lambda: verdict_table(RESULTS / "verdicts_fresh.csv"),
    "verdicts-detail": lambda: detail_table(RESULTS / "verdicts.csv"),
    "verdicts-left-out": lambda: left_out_table(RESULTS / "verdicts_left_out.csv"),
    "robust": lambda: regret_table(RESULTS / "robust.csv"),
    "fit-time": lambda: csv_table(FIT_TIME)(RESULTS / "fit_time.csv"),
    "large-fit": lambda: csv_table(LARGE_FIT)(RESULTS / "large_fit.csv"),
    "block-fit": lambda: csv_table(BLOCK_FIT)(RESULTS / "block_fit.csv"),
    "cores": lambda: csv_table(CORES)(RESULTS / "cores.csv"),
    "faults": lambda: csv_table(FAULTS)(RESULTS / "faults.csv"),
    "group-strengths": lambda: group_strengths_table(RESULTS / "group_strengths.csv"),
    "stability": lambda: stability_table(read_stability(RESULTS / "stability.csv")),
    "best-epoch": lambda: best_epoch_table(read_row_file(RESULTS / "best_epoch.csv", BestEpochRow)),
    "few-metadata": lambda: few_metadata_table(read_row_file(RESULTS / "few_metadata.csv", FewMetadataRow)),
    "ledger-cost": lambda: ledger_cost_table(RESULTS),
    "claims": lambda: claims_table(RESULTS),
    "tail-features": lambda: tail_tables(read_row_file(RESULTS / "tail_features.csv", TailRow)),
    "long-training": lambda: long_training_table(read_row_file(RESULTS / "long_training.csv", LongTrainingRow)),
    "shortcut-and-noise": lambda: shortcut_and_noise_table(
        read_row_file(RESULTS / "shortcut_and_noise.csv", ShortcutAndNoiseRow)
    ),
    "selection": lambda: selection_table(read_rule_rows(RESULTS / "selection.csv")),
    **{name: partial(paper_table, name) for name in SUITES},
}


def fill(text: str) -> str:
    """The page with every marked table made again."""

    def replace(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in TABLES:
            raise InputError(f"no table is called {name!r}: known are {', '.join(TABLES)}.")
        return f"{match[1]}{TABLES[name]()}\n{match[3]}"

    return _MARKED.sub(replace, text)


def main(arguments: Sequence[str]) -> int:
    check = "--check" in arguments
    stale = []
    for path in (Path(word) for word in arguments if word != "--check"):
        text = path.read_text()
        filled = fill(text)
        if filled != text:
            stale.append(str(path))
            if not check:
                path.write_text(filled)
    if stale:
        print(f"{'differ from benchmarks/results' if check else 'written'}: {', '.join(stale)}")
    return int(check and bool(stale))


def _small_tasks(rows: list[dict[str, str]]) -> str:
    methods = sorted({row["method"] for row in rows}, key=lambda name: list(SHORT_NAMES).index(name))
    body = [
        [SHORT_NAMES[method], *(_mean_std(rows, task, method, metric) for task, (_, metric) in SMALL_TASKS.items())]
        for method in methods
    ]
    return markdown(["method", *(title for title, _ in SMALL_TASKS.values())], body)


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _mean_std(rows: list[dict[str, str]], task: str, method: str, metric: str) -> str:
    return spread(
        [100 * float(r[metric]) for r in rows if (r["task"], r["method"]) == (task, method) and r[metric]], digits=1
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
