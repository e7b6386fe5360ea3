from __future__ import annotations

from pathlib import Path

import pytest

from icda.results.ledger import COLUMNS, write_ledger
from icda_bench import tables

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_on_a_page_agree_with_their_csv(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert tables.fill_page(page.read_text()) == page.read_text(), "run `make tables`"


def test_mean_and_deviation_are_those_of_the_seeds(tmp_path: Path) -> None:
    blank = dict.fromkeys(COLUMNS, "")
    rows = [
        {**blank, "task": "digits_lt", "method": "icda", "seed": str(k), "accuracy": value}
        for k, value in enumerate(("0.5", "0.7"))
    ]
    rows.append({**blank, "task": "digits_flip_noise", "method": "icda", "seed": "0", "accuracy": "0.25"})
    write_ledger(tmp_path / "demo.csv", rows)
    assert "| ICDA | 60.0 ± 14.1 (2) | 25.0 (1) |  |" in tables.make_table("demo", tmp_path)


def test_check_finds_a_page_that_disagrees_and_writing_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table: speed -->\nstale\n<!-- end of table -->\nafter\n")
    assert tables.main(["--check", str(page)]) == 1
    assert tables.main([str(page)]) == 0
    assert tables.main(["--check", str(page)]) == 0
    assert page.read_text().startswith("before\n<!-- table: speed -->\n| what |")
    assert page.read_text().endswith("<!-- end of table -->\nafter\n")


def test_an_unknown_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="no table is called 'nonsense'"):
        tables.fill_page("<!-- table: nonsense -->\n<!-- end of table -->")
