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
from icda_bench.ledger_tables import ledger_cost_table, small_tasks_table
from icda_bench.markdown import columns_table
from icda_bench.paper_claims import claims_table
from icda_bench.rows import COLUMNS, read_table
from icda_bench.studies.asking import person_table, share_table
from icda_bench.studies.audit import audit_table
from icda_bench.studies.embeddings.methods import BY_CLASS
from icda_bench.studies.embeddings.run import HEADLINE_COLUMNS, HEADLINE_ROWS, embeddings_table
from icda_bench.studies.finished_runs import group_strengths_table, mistakes_table
from icda_bench.studies.meta_learning import separation_table
from icda_bench.studies.noisy_digits import (
    best_epoch_table,
    few_metadata_table,
    long_training_table,
    shortcut_and_noise_table,
)
from icda_bench.studies.peers.run import peers_table
from icda_bench.studies.robust_verdicts import robust_verdicts_table
from icda_bench.studies.selection_rules import selection_table
from icda_bench.studies.stability import stability_table
from icda_bench.studies.tail_features import tail_tables
from icda_bench.studies.verdicts.judge import detail_table, left_out_table, regret_table, verdict_table
from icda_bench.suites.suite import SUITES, load_suite
from icda_bench.suites.suite_table import overview_table, suite_rows, suite_table

RESULTS = Path("benchmarks/results")
_MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
# Tables of one file's rows: the file, and what makes the table.
ROW_TABLES: dict[str, tuple[str, Callable[[list[Any]], str]]] = {
    "asking": ("asking", share_table),
    "asking-harmless": ("asking", person_table),
    "audit": ("audit", audit_table),
    "best-epoch": ("best_epoch", best_epoch_table),
    "demo": ("demo", small_tasks_table),
    "embeddings": ("embeddings", embeddings_table),
    "embeddings-accuracy": ("embeddings", partial(embeddings_table, figure="accuracy")),
    "embeddings-headline": (
        "embeddings",
        partial(embeddings_table, only=HEADLINE_ROWS, places=HEADLINE_COLUMNS, left_out=BY_CLASS),
    ),
    "few-metadata": ("few_metadata", few_metadata_table),
    "group-strengths": ("group_strengths", group_strengths_table),
    "long-training": ("long_training", long_training_table),
    "meta": ("meta", small_tasks_table),
    "mistakes": ("mistakes", mistakes_table),
    "peers": ("peers", partial(peers_table, figure="worst_group")),
    "peers-accuracy": ("peers", partial(peers_table, figure="accuracy")),
    "peers-seconds": ("peers", partial(peers_table, figure="seconds")),
    "robust": ("robust", regret_table),
    "robust-verdicts": ("robust_verdicts", robust_verdicts_table),
    "selection": ("selection", selection_table),
    "separation": ("meta_separation", separation_table),
    "shortcut-and-noise": ("shortcut_and_noise", shortcut_and_noise_table),
    "stability": ("stability", stability_table),
    "table3": ("table3", cost_table),
    "tail-features": ("tail_features", tail_tables),
    "verdicts": ("verdicts", verdict_table),
    "verdicts-detail": ("verdicts", detail_table),
    "verdicts-fresh": ("verdicts_fresh", verdict_table),
    "verdicts-left-out": ("verdicts_left_out", left_out_table),
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
NAMES = (*COLUMNS, *ROW_TABLES, *SUITES, *OVERVIEWS, *FOLDER_TABLES)


def make_table(name: str, results: Path = RESULTS) -> str:
    """A table by its name, from the files in `results`."""
    if name in COLUMNS:
        return columns_table(read_table(results / f"{name.replace('-', '_')}.csv"), COLUMNS[name])
    if name in ROW_TABLES:
        file, row_table = ROW_TABLES[name]
        return row_table(read_table(results / f"{file}.csv"))
    if name in SUITES:
        return suite_table(load_suite(name), suite_rows(name, results))
    if name in OVERVIEWS:
        suite, ending = OVERVIEWS[name]
        return overview_table(load_suite(suite), suite_rows(suite, results), ending)
    if name in FOLDER_TABLES:
        return FOLDER_TABLES[name](results)
    raise InputError(f"no table is called {name!r}: known are {', '.join(NAMES)}.")


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
