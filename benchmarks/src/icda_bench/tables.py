"""The tables of README and docs, made from the CSV files in benchmarks/results.

    python -m icda_bench.tables README.md docs/*.md docs/*/*.md            # write
    python -m icda_bench.tables --check README.md docs/*.md docs/*/*.md    # fail when a page and its CSV disagree

A page marks a table with `<!-- table: NAME -->` and `<!-- end of table -->`; what stands between is generated.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from icda.errors import InputError
from icda_bench.cost.network_cost import cost_table
from icda_bench.headline import headline_table
from icda_bench.ledger import read_ledger
from icda_bench.ledger_tables import ledger_cost_table, small_tasks_table
from icda_bench.markdown import columns_table, markdown, spread
from icda_bench.paper_claims import claims_table
from icda_bench.rows import COLUMNS, read_rows, read_table
from icda_bench.studies.asking import person_table, share_table
from icda_bench.studies.audit import AuditRow, audit_table
from icda_bench.studies.embeddings.methods import BY_CLASS
from icda_bench.studies.embeddings.run import HEADLINE_COLUMNS, HEADLINE_ROWS, embeddings_table
from icda_bench.studies.finished_runs import MistakesRow, StrengthRow, group_strengths_table, mistakes_table
from icda_bench.studies.noisy_digits import (
    BestEpochRow,
    FewMetadataRow,
    LongTrainingRow,
    ShortcutAndNoiseRow,
    best_epoch_table,
    few_metadata_table,
    long_training_table,
    shortcut_and_noise_table,
)
from icda_bench.studies.peers.run import PeerRow, peers_table
from icda_bench.studies.robust_verdicts import RobustRow, robust_verdicts_table
from icda_bench.studies.selection_rules import RuleRow, selection_table
from icda_bench.studies.stability import StabilityRow, stability_table
from icda_bench.studies.tail_features import TailRow, tail_tables
from icda_bench.studies.verdicts.judge import detail_table, left_out_table, regret_table, verdict_table
from icda_bench.suites.suite import SUITES, load_suite
from icda_bench.suites.suite_table import overview_table, suite_rows, suite_table

RESULTS = Path("benchmarks/results")
_MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
# Tables of one file's rows: the file, the type of its rows, what makes the table.
ROW_TABLES: dict[str, tuple[str, type[Any], Callable[[list[Any]], str]]] = {
    "audit": ("audit", AuditRow, audit_table),
    "best-epoch": ("best_epoch", BestEpochRow, best_epoch_table),
    "few-metadata": ("few_metadata", FewMetadataRow, few_metadata_table),
    "group-strengths": ("group_strengths", StrengthRow, group_strengths_table),
    "long-training": ("long_training", LongTrainingRow, long_training_table),
    "mistakes": ("mistakes", MistakesRow, mistakes_table),
    "robust-verdicts": ("robust_verdicts", RobustRow, robust_verdicts_table),
    "peers": ("peers", PeerRow, partial(peers_table, figure="worst_group")),
    "peers-accuracy": ("peers", PeerRow, partial(peers_table, figure="accuracy")),
    "peers-seconds": ("peers", PeerRow, partial(peers_table, figure="seconds")),
    "selection": ("selection", RuleRow, selection_table),
    "shortcut-and-noise": ("shortcut_and_noise", ShortcutAndNoiseRow, shortcut_and_noise_table),
    "stability": ("stability", StabilityRow, stability_table),
    "tail-features": ("tail_features", TailRow, tail_tables),
}
# Tables of one file that they read themselves.
FILE_TABLES: dict[str, tuple[str, Callable[[Path], str]]] = {
    "asking": ("asking", share_table),
    "asking-harmless": ("asking", person_table),
    "demo": ("demo", lambda path: small_tasks_table(read_ledger(path))),
    "meta": ("meta", lambda path: small_tasks_table(read_ledger(path))),
    "table3": ("table3", lambda path: cost_table(read_table(path))),
    "embeddings": ("embeddings", embeddings_table),
    "embeddings-accuracy": ("embeddings", partial(embeddings_table, figure="accuracy")),
    "embeddings-headline": (
        "embeddings",
        partial(embeddings_table, only=HEADLINE_ROWS, places=HEADLINE_COLUMNS, left_out=BY_CLASS),
    ),
    "verdicts": ("verdicts", verdict_table),
    "verdicts-fresh": ("verdicts_fresh", verdict_table),
    "verdicts-detail": ("verdicts", detail_table),
    "verdicts-left-out": ("verdicts_left_out", left_out_table),
    "robust": ("robust", regret_table),
    "separation": ("meta_separation", lambda path: separation_table(read_table(path))),
}
# What was measured in a suite at one glance: the suite, and how the titles of its columns must end.
OVERVIEWS = {
    "noise-overview": ("noise", ""),
    "table2-overview": ("table2", ""),
    "table4-overview": ("table4", ""),
    "table6-overview": ("table6", ", worst group"),
    "table7-overview": ("table7", ", accuracy"),
}
# Tables of several files.
FOLDER_TABLES: dict[str, Callable[[Path], str]] = {
    "claims": claims_table,
    "headline": partial(headline_table, folder="docs/"),
    "headline-home": headline_table,
    "ledger-cost": ledger_cost_table,
}
NAMES = (*COLUMNS, *ROW_TABLES, *FILE_TABLES, *SUITES, *OVERVIEWS, *FOLDER_TABLES)


def make_table(name: str, results: Path = RESULTS) -> str:
    """A table by its name, from the files in `results`."""
    if name in COLUMNS:
        return columns_table(read_table(results / f"{name.replace('-', '_')}.csv"), COLUMNS[name])
    if name in ROW_TABLES:
        file, kind, row_table = ROW_TABLES[name]
        return row_table(read_rows(results / f"{file}.csv", kind))
    if name in FILE_TABLES:
        file, file_table = FILE_TABLES[name]
        return file_table(results / f"{file}.csv")
    if name in SUITES:
        return suite_table(load_suite(name), suite_rows(name, results))
    if name in OVERVIEWS:
        suite, ending = OVERVIEWS[name]
        return overview_table(load_suite(suite), suite_rows(suite, results), ending)
    if name in FOLDER_TABLES:
        return FOLDER_TABLES[name](results)
    raise InputError(f"no table is called {name!r}: known are {', '.join(NAMES)}.")


def separation_table(rows: Sequence[dict[str, str]]) -> str:
    """How well numbers about a training sample find wrong labels: AUROC, mean ± standard deviation over seeds."""
    names = {"low_learned_strength": "learned strength, low", "direct_strength": "strength by angle", "loss": "loss"}
    body = [[title, spread([float(row[name]) for row in rows], digits=3)] for name, title in names.items()]
    return markdown(["number about a sample", "AUROC for wrong labels"], body)


def fill_page(text: str) -> str:
    """The page with every marked table made again."""
    return _MARKED.sub(lambda match: f"{match[1]}{make_table(match['name'])}\n{match[3]}", text)


def main(arguments: Sequence[str]) -> int:
    check = "--check" in arguments
    stale = []
    for path in (Path(word) for word in arguments if word != "--check"):
        text = path.read_text()
        filled = fill_page(text)
        if filled != text:
            stale.append(str(path))
            if not check:
                path.write_text(filled)
    if stale:
        print(f"{'differ from benchmarks/results' if check else 'written'}: {', '.join(stale)}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
