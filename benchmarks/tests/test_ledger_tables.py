"""The cost of the committed runs is the sum of what their rows say."""

from __future__ import annotations

from pathlib import Path

from icda.results.ledger import COLUMNS, write_ledger
from icda_bench.ledger_tables import ledger_cost_table


def row(method: str, seed: int, seconds: float, tier: str = "cpu") -> dict[str, str]:
    told = {"task": "digits", "method": method, "seed": str(seed), "seconds": str(seconds), "tier": tier}
    return {**dict.fromkeys(COLUMNS, ""), **told, "machine": "chip, 2 cores", "torch": "2.0"}


def test_runs_seeds_and_hours_are_counted_by_table_and_tier(tmp_path: Path) -> None:
    rows = [row("icda", 0, 3600), row("icda", 1, 3600), row("isda", 0, 1800), row("icda", 0, 7200, "long")]
    write_ledger(tmp_path / "table2.csv", rows)
    lines = ledger_cost_table(tmp_path).splitlines()[2:]
    assert lines == [
        "| table2 | cpu | 3 | 1 to 2 | 2.5 | chip, 2 cores | 2.0 |",
        "| table2 | long | 1 | 1 | 2.0 | chip, 2 cores | 2.0 |",
    ]


def test_heads_on_features_are_counted_too(tmp_path: Path) -> None:
    (tmp_path / "tail_features.csv").write_text(
        "set,method,seed,seconds,processor,cores,torch\na,ce,0,1800,chip,2,2.0\na,ce,1,1800,chip,2,2.0\na,la,0,0,chip,2,2.0\n"
    )
    assert ledger_cost_table(tmp_path).splitlines()[2:] == [
        "| tail-features |  | 3 | 1 to 2 | 1.0 | chip, 2 cores | 2.0 |"
    ]
