"""The figure of the paper's claims has the ledgers' leads and the table's verdicts."""

import re
from pathlib import Path

import pytest
from benchmarks.tests.suites.ledgers import rows_for
from PIL import Image

from icda.results.ledger import write_ledger
from icda_bench.claims_figure import Dot, claim_dots, draw_claims
from icda_bench.paper_claims import claims_table, load_claims
from icda_bench.suites.suite import load_suite

RESULTS = Path(__file__).parents[1] / "results"


def claim(text):
    return next(claim for claim in load_claims() if claim.text == text)


def test_each_claim_of_a_suite_has_a_dot_with_the_tables_verdict_and_a_lead_that_stands_there():
    rows = [line.split(" | ") for line in claims_table(RESULTS).splitlines()[2:]]
    verdicts = {cells[0].removeprefix("| ").rpartition(" (")[0]: cells[-1] for cells in rows}
    for given in load_claims():
        if given.text not in verdicts:
            assert (given.tier, claim_dots([given], RESULTS)[:-1]) == ("long", [])  # the last is that of features
            continue
        dot = claim_dots([given], RESULTS)[0]
        assert verdicts[given.text].startswith(dot.status)
        leads = [float(lead) for lead in re.findall(r"([+-]\d+\.\d) to ", verdicts[given.text])]
        if dot.lead is None:
            assert leads == []
        else:
            towards = -1 if given.suite == "ablation" else 1  # there the row is said to be behind
            assert round(dot.lead, 1) == min(towards * lead for lead in leads)


def test_the_weakest_comparison_is_drawn_and_one_that_disagrees_before_one_that_agrees(tmp_path):
    suite = load_suite("table2")
    rows = rows_for(suite, "logit_adjustment", "cpu", [0.40, 0.42, 0.41])
    rows += rows_for(suite, "icda", "cpu", [0.46, 0.47, 0.48]) + rows_for(suite, "isda", "cpu", [0.45, 0.46, 0.47])
    write_ledger(tmp_path / "table2.csv", rows)
    (dot,) = claim_dots([claim("ahead of LA on long tails, 100:1")], tmp_path)
    assert (dot.compared, dot.status) == ("ICDA − ISDA", "does not hold")  # +1.0 within noise; +6.0 to LA
    assert dot.lead == pytest.approx(1.0)
    assert dot.paper == pytest.approx(81.69 - 80.60)  # the paper's best rival is De-confound-TDE
    assert dot.noise == pytest.approx(2 * 1.0 * (2 / 3) ** 0.5)


def test_what_was_not_run_has_the_papers_lead_alone_and_errors_count_as_accuracies(tmp_path):
    celeba, standard, part = claim_dots(
        [
            claim("the same: CelebA, worst group"),
            claim("the same, 100 classes (error)"),
            claim("the class margin matters"),
        ],
        tmp_path,
    )
    assert (celeba.lead, celeba.compared, celeba.status) == (None, "ICDA − UW", "not run here")
    assert celeba.paper == pytest.approx(90.7 - 83.3)
    assert standard.paper == pytest.approx(26.35 - 25.21)
    assert (part.paper, part.lead) == (None, None)


def test_the_picture_has_a_row_for_each_dot(tmp_path):
    dots = [Dot("Group", f"claim {number}", "A − B", 1.0, None, 0.0, "not run here") for number in range(3)]
    heights = []
    for shown in (dots, [*dots, Dot("Other", "d", "A − B", None, -60.0, 2.0, "does not hold")]):
        draw_claims(shown, tmp_path / "claims.png")
        heights.append(Image.open(tmp_path / "claims.png").height)
    assert heights[1] - heights[0] == pytest.approx(2 * 0.245 * 150, abs=1)  # its group has a heading
