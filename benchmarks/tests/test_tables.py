from pathlib import Path

import pytest
from benchmarks.tests.suites.ledgers import ledger_row

from icda.results.ledger import write_ledger
from icda_bench import tables
from icda_bench.ledger_tables import ledger_cost_table

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_on_a_page_agree_with_their_csv(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert tables.fill_page(page.read_text()) == page.read_text(), "run `make tables`"


def test_mean_and_deviation_are_those_of_the_seeds(tmp_path):
    rows = [ledger_row(task="digits_lt", method="icda", seed=k, accuracy=0.5 + 0.2 * k) for k in range(2)]
    rows.append(ledger_row(task="digits_flip_noise", method="icda", seed=0, accuracy=0.25))
    write_ledger(tmp_path / "demo.csv", rows)
    table = tables.make_table("demo", tmp_path)
    assert "| ICDA | 60.0 ± 14.1 (2) | 25.0 (1) |" in table
    assert "colour" not in table, "a task that nobody ran has no column"


def test_check_finds_a_page_that_disagrees_and_writing_mends_it(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: speed -->\nstale\n<!-- end of table -->\nafter\n")
    assert tables.main(["--check", str(page)]) == 1
    assert tables.main([str(page)]) == 0
    assert tables.main(["--check", str(page)]) == 0
    assert page.read_text().startswith("before\n<!-- table: speed -->\n| what |")
    assert page.read_text().endswith("<!-- end of table -->\nafter\n")


def test_an_unknown_table_is_an_error():
    with pytest.raises(ValueError, match="no table is called 'nonsense'"):
        tables.fill_page("<!-- table: nonsense -->\n<!-- end of table -->")


def test_runs_seeds_and_hours_are_counted_by_table_and_tier(tmp_path):
    runs = [("icda", 0, 3600, "cpu"), ("icda", 1, 3600, "cpu"), ("isda", 0, 1800, "cpu"), ("icda", 0, 7200, "long")]
    names, machine = (
        ("method", "seed", "seconds", "tier"),
        {"machine": "chip, 2 cores", "torch": "2.0", "code": "0a1b2c3d"},
    )
    rows = [ledger_row(task="digits", **dict(zip(names, run, strict=True)), **machine) for run in runs]
    rows[0]["code"] = ""  # from before rows had one
    write_ledger(tmp_path / "table2.csv", rows)
    lines = ledger_cost_table(tmp_path).splitlines()[2:]
    assert lines == [
        "| table2 | cpu | 3 | 1 to 2 | 2.5 | chip, 2 cores | 2.0 | 0a1b2c3, no hash |",
        "| table2 | long | 1 | 1 | 2.0 | chip, 2 cores | 2.0 | 0a1b2c3 |",
    ]


def test_heads_on_features_are_counted_too(tmp_path):
    (tmp_path / "tail_features.csv").write_text(
        "set,method,seed,seconds,processor,cores,torch,code\na,ce,0,1800,chip,2,2.0,0a\na,ce,1,1800,chip,2,2.0,0a\na,la,0,0,chip,2,2.0,0a\n"
    )
    assert ledger_cost_table(tmp_path).splitlines()[2:] == [
        "| tail-features |  | 3 | 1 to 2 | 1.0 | chip, 2 cores | 2.0 | 0a |"
    ]
