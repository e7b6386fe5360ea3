"""The table of the paper's claims says what the ledgers say, and the pages around it agree with it."""

from pathlib import Path

import pytest

from icda_bench.ledger import read_ledger
from icda_bench.paper_claims import FeaturesClaim, claims_table, load_claims
from icda_bench.rows import append_rows
from icda_bench.suites.suite import SUITES, load_suite
from icda_bench.suites.suite_table import ColumnRuns, suite_rows

HOME = Path(__file__).parents[2]
RESULTS, PAGE = HOME / "benchmarks" / "results", (HOME / "docs" / "evidence" / "paper.md").read_text()


@pytest.fixture(scope="module")
def lines():
    return claims_table(RESULTS).splitlines()[2:]


@pytest.mark.parametrize("claim", load_claims(), ids=lambda claim: claim.text)
def test_a_claim_has_the_figures_and_the_verdict_of_its_suite(claim, lines):
    suite = load_suite(claim.suite)
    runs = ColumnRuns(suite, suite.column(claim.column), claim.tier, suite_rows(suite.name, RESULTS))
    found = {line.row.key: line for line in runs.lines()}
    mine = [line for line in lines if line.startswith(f"| {claim.text} (")]
    if claim.tier == "long" and not (found[claim.row].values and found[claim.against].values):
        assert mine == []
        return
    assert len(mine) == 1
    assert mine[0].endswith(f"| {found[claim.row].verdict.text()} |")
    if found[claim.row].paper is not None:
        assert f" {suite.printed(found[claim.row].paper):.2f}" in mine[0]
    assert mine[0].count("not run here") == (not found[claim.row].values) * 2 + (not found[claim.against].values)


def test_what_no_tier_of_ours_can_run_is_named_in_one_place():
    """A column without a task of tier cpu or long says why, and the page has a line with its data or network and that."""
    lines = PAGE.split("## What cannot be run here")[1].split("\n## ")[0].splitlines()
    for name in SUITES:
        for column in load_suite(name).columns:
            if column.absent is not None:
                why = column.absent.partition(" for ")[0]
                assert why in ("data not available", "too long")
                names = column.title.split(", ")
                assert any(why in line and any(part in line for part in names) for line in lines), (name, column.title)


def test_the_readmes_figures_of_the_longest_runs_are_the_ledgers():
    readme = " ".join((HOME / "README.md").read_text().split())
    gain = [row for row in read_ledger(RESULTS / "gain.csv") if row["tier"] == "long"]
    by_method = {row["method"]: 100 * float(row["accuracy"]) for row in gain if row["seed"] == "0"}
    assert f"logit adjustment reaches the paper's accuracy of {by_method['logit_adjustment']:.0f} %." in readme
    assert f"ICDA reaches {by_method['icda']:.1f}, not the paper's" in readme


def test_features_are_a_line_once_they_were_run_and_judged_by_seeds(tmp_path):
    assert "ImageNet-LT" not in claims_table(tmp_path)
    for method, figures in (("la", (0.50, 0.52)), ("icda", (0.51, 0.53))):
        rows = [{"set": "tiny_imagenet_lt", "method": method, "accuracy": value} for value in figures]
        append_rows(tmp_path / "tail_features.csv", rows)
    text = claims_table(tmp_path)
    assert "ICDA 52.0 ± 1.4 (2), LA 51.0 ± 1.4 (2)" in text
    assert "trend holds: +1.0 to LA, ahead with 2 of 2 seeds" in text
    mixed = FeaturesClaim([50.0, 50.0], [49.0, 51.0])
    assert mixed.verdict() == "does not hold: +0.0 to LA, ahead with 1 of 2 seeds"
