"""A plan knows what a ledger has, what it lacks, and what the rest will cost."""

from typing import Any

import pytest
from benchmarks.tests.suites.ledgers import ledger_row as blank_row
from benchmarks.tests.suites.ledgers import made_cell as cell
from rich.console import Console

from icda.results.ledger import write_ledger
from icda_bench.ledger import cell_columns
from icda_bench.suites.plan import CostEstimate, in_ledger, open_table, plan_lines
from icda_bench.suites.runner import run_suite
from icda_bench.suites.suite import Column, Place, Suite, SuiteRow, cells, load_suite


def suite(cell_seconds=None):
    columns = (Column("a", "A", {"smoke": Place("digits_lt", cell_seconds=cell_seconds)}),)
    rows = (SuiteRow("cross_entropy", "CE", "cross_entropy"),)
    return Suite("some", "a table", columns, rows, ("smoke",), "cross_entropy")


def ledger_row(chosen, seconds=1.0):
    told = {"tier": chosen.tier, "seconds": seconds, "config_hash": chosen.config.hash()}
    return blank_row(**cell_columns(chosen.config), **told)


def test_a_cell_is_in_the_ledger_only_with_the_same_settings_seed_and_tier(tmp_path):
    there = cell(tmp_path)
    others = [cell(tmp_path, seed=1), cell(tmp_path, epochs=2), cell(tmp_path, "icda"), cell(tmp_path, batch_size=7)]
    assert list(in_ledger([*others, there], [ledger_row(there)])) == [4]
    assert in_ledger([there], [{**ledger_row(there), "tier": "cpu"}]) == {}


def test_a_method_costs_per_epoch_what_it_cost_on_the_same_task_and_network(tmp_path):
    rows = [ledger_row(cell(tmp_path, epochs=2), 10.0), ledger_row(cell(tmp_path, epochs=2, seed=1), 14.0)]
    cost = CostEstimate(suite(), rows)
    assert cost.seconds(cell(tmp_path, epochs=20, seed=5)) == pytest.approx(120.0)


def test_a_method_not_seen_there_costs_its_factor_of_elsewhere(tmp_path):
    elsewhere: dict[str, Any] = {"task": "digits"}
    rows = [
        ledger_row(cell(tmp_path, **elsewhere), 10.0),
        ledger_row(cell(tmp_path, "meta_icda", **elsewhere), 40.0),
        ledger_row(cell(tmp_path, "icda", **elsewhere), 12.0),
        ledger_row(cell(tmp_path, "icda"), 24.0),  # so cross entropy would take 20 here
    ]
    assert CostEstimate(suite(), rows).seconds(cell(tmp_path, "meta_icda")) == pytest.approx(80.0)


def test_a_tier_may_say_what_a_cell_costs_before_any_was_run(tmp_path):
    assert CostEstimate(suite(), []).seconds(cell(tmp_path)) is None
    assert CostEstimate(suite(90.0), []).seconds(cell(tmp_path)) == 90.0
    assert CostEstimate(suite(), []).text([cell(tmp_path)]) == "nothing in the ledger says how long they take"


def test_a_plan_tells_what_is_done_what_is_left_and_its_cost(tmp_path):
    chosen = [cell(tmp_path, seed=seed) for seed in range(4)]
    run_suite(chosen[:1], Console(quiet=True))
    rows = [ledger_row(chosen[1], 90.0)]
    lines = plan_lines(suite(), chosen, rows, in_ledger(chosen, rows))
    assert [line.split()[0] for line in lines[:4]] == ["done", "ledger", "open", "open"]
    assert lines[2].endswith("about 90 s")
    assert lines[4] == "4 cells: 2 done, 2 to run, about 3 core minutes"


def test_runs_that_a_ledger_lacks_are_counted_and_rows_without_any_are_named(tmp_path):
    planned = [cell for cell in cells(load_suite("ablation"), "cpu", "") if cell.column == "long_tail"]

    def lines(present):
        # other seeds than the suite's: a row has its runs whichever seeds they are
        rows = [{**ledger_row(cell, 60.0), "tier": "cpu", "seed": str(cell.config.seed + 10)} for cell in present]
        write_ledger(tmp_path / "ablation.csv", rows)
        return [line for line in open_table(tmp_path).splitlines() if line.startswith("| `ablation` | cpu | ")]

    whole = lines(planned)
    lacking = [cell for cell in planned if cell.row != "icda" and (cell.row, cell.config.seed) != ("setting_1", 2)]
    partly = lines(lacking)
    title = load_suite("ablation").column("long_tail").title
    assert not [line for line in whole if title in line]
    (line,) = [line for line in partly if title in line]
    assert line.split(" | ")[3:] == [f"4 of {len(planned)}", "ICDA", "about 4 core minutes |"]
