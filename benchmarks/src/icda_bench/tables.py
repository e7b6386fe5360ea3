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
from icda_bench.suites.plan import open_table
from icda_bench.suites.suite import SUITES, Suite, load_suite
from icda_bench.suites.suite_table import overview_table, suite_rows, suite_table

RESULTS = Path("benchmarks/results")
_MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
Table = Callable[[Path], str]  # of the folder with the files


def _rows(file: str, table: Callable[[list[Any]], str]) -> Table:
    """A table of one file's rows."""
    return lambda results: table(read_table(results / f"{file}.csv"))


def _suite(name: str, table: Callable[[Suite, list[dict[str, str]]], str]) -> Table:
    """A table of a suite and its ledger."""
    return lambda results: table(load_suite(name), suite_rows(name, results))


TABLES: dict[str, Table] = {
    **{name: _rows(name.replace("-", "_"), partial(columns_table, titles=titles)) for name, titles in COLUMNS.items()},
    "asking": _rows("asking", share_table),
    "asking-harmless": _rows("asking", person_table),
    "audit": _rows("audit", audit_table),
    "best-epoch": _rows("best_epoch", best_epoch_table),
    "demo": _rows("demo", small_tasks_table),
    "embeddings": _rows("embeddings", embeddings_table),
    "embeddings-accuracy": _rows("embeddings", partial(embeddings_table, figure="accuracy")),
    "embeddings-headline": _rows(
        "embeddings",
        partial(embeddings_table, only=HEADLINE_ROWS, places=HEADLINE_COLUMNS, left_out=BY_CLASS),
    ),
    "few-metadata": _rows("few_metadata", few_metadata_table),
    "group-strengths": _rows("group_strengths", group_strengths_table),
    "long-training": _rows("long_training", long_training_table),
    "meta": _rows("meta", small_tasks_table),
    "mistakes": _rows("mistakes", mistakes_table),
    "peers": _rows("peers", partial(peers_table, figure="worst_group")),
    "peers-accuracy": _rows("peers", partial(peers_table, figure="accuracy")),
    "peers-seconds": _rows("peers", partial(peers_table, figure="seconds")),
    "robust": _rows("robust", regret_table),
    "robust-verdicts": _rows("robust_verdicts", robust_verdicts_table),
    "selection": _rows("selection", selection_table),
    "separation": _rows("meta_separation", separation_table),
    "shortcut-and-noise": _rows("shortcut_and_noise", shortcut_and_noise_table),
    "stability": _rows("stability", stability_table),
    "table3": _rows("table3", cost_table),
    "tail-features": _rows("tail_features", tail_tables),
    "verdicts": _rows("verdicts", verdict_table),
    "verdicts-detail": _rows("verdicts", detail_table),
    "verdicts-fresh": _rows("verdicts_fresh", verdict_table),
    "verdicts-left-out": _rows("verdicts_left_out", left_out_table),
    **{name: _suite(name, suite_table) for name in SUITES},
    "noise-overview": _suite("noise", overview_table),
    "table2-overview": _suite("table2", overview_table),
    "table4-overview": _suite("table4", overview_table),
    "table6-overview": _suite("table6", partial(overview_table, ending=", worst group")),
    "table7-overview": _suite("table7", partial(overview_table, ending=", accuracy")),
    "claims": claims_table,
    "headline": partial(headline_table, folder="docs/"),
    "headline-home": headline_table,
    "ledger-cost": ledger_cost_table,
    "open-runs": open_table,
}


def make_table(name: str, results: Path = RESULTS) -> str:
    """A table by its name, from the files in `results`."""
    if name not in TABLES:
        raise InputError(f"no table is called {name!r}: known are {', '.join(TABLES)}.")
    return TABLES[name](results)


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
