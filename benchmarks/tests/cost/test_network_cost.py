import re
from pathlib import Path
from typing import Any

import pytest

from icda.models import MODELS
from icda_bench.cost import network_cost
from icda_bench.cost.network_cost import add_to_csv, cost_table, load_cost_suite, measure_step
from icda_bench.rows import read_table

PAPER = Path(__file__).resolve().parents[4] / "shared" / "paper.tex"


def row(network="resnet32", classes=10, tier="cpu", extra=5.0):
    place = {"network": network, "classes": classes, "tier": tier, "batch": 32}
    return {**place, "base_ms": 100.0, "method_ms": 105.0, "extra": extra, "noise": 1.0, "loss_alone": 0.8}


def test_every_network_of_the_papers_table_is_known():
    assert all(row["network"] in MODELS for row in load_cost_suite()["rows"])


def test_the_papers_figures_stand_in_the_paper():
    if not PAPER.is_file():
        pytest.skip(f"{PAPER} is not there: the figures were not compared with the paper.")
    text = PAPER.read_text()
    table = text[: text.index("\\label{table3}")].rpartition("\\begin{table")[2]
    lines = [re.findall(r"(\d\.\d)\\%", line) for line in table.splitlines()]
    assert [[float(x) for x in line] for line in lines if line] == [row["paper"] for row in load_cost_suite()["rows"]]


def test_figures_are_made_of_paired_steps_and_of_the_loss_alone(monkeypatch):
    """Steps of 100, 200 and 400 ms, to which ICDA adds 2, 4 and 6 per cent; the loss alone adds 4 ms at 128."""
    rounds = iter([(0.1, 0.102), (0.2, 0.208), (0.4, 0.424)])

    def interleave(steps: dict[str, Any], rounds_: int = 0, warm_up: int = 3, **given: int) -> dict[str, list[float]]:
        pairs = [next(rounds) for _ in range(given.get("rounds", rounds_))]
        return {"ce": [a for a, _ in pairs], "icda": [b for _, b in pairs]}

    def head(*asked: object) -> float:
        assert asked == (10, 64, 128, "full")
        return 0.004

    monkeypatch.setattr(network_cost, "interleave", interleave)
    monkeypatch.setattr(network_cost, "head_extra_seconds", head)
    row = measure_step("resnet32", 10, "cpu", batch=8, steps=3, seconds=20)
    assert (row["extra"], row["noise"], row["steps"]) == (4.0, 1.0, 3)
    assert (row["base_ms"], row["method_ms"]) == (200.0, 208.0)
    assert row["loss_alone"] == 0.125, "4 ms of a step that takes sixteen times 200"


def test_a_covariance_that_does_not_fit_is_measured_as_diagonal(recwarn):
    assert measure_step("linear", 10, "cpu", batch=2, steps=3, seconds=0.01)["steps"] == 3
    assert len(recwarn) == 0


def test_measuring_again_takes_the_place_of_what_was_measured_before(tmp_path):
    path = tmp_path / "table3.csv"
    add_to_csv([row(), row("wrn_16_8")], path)
    add_to_csv([row(extra=7.0), row(tier="paper", extra=6.0)], path)
    assert [(line["tier"], line["network"], line["extra"]) for line in read_table(path)] == [
        ("cpu", "resnet32", "7.0"),
        ("cpu", "wrn_16_8", "5.0"),
        ("paper", "resnet32", "6.0"),
    ]


def test_the_table_has_the_paper_ours_and_a_status(tmp_path):
    path = tmp_path / "table3.csv"
    add_to_csv([row(extra=7.5), row(classes=100, extra=9.5)], path)
    text = cost_table(read_table(path))
    assert "| ResNet-32 | CIFAR-10 | +6.9 % | +7.5 ± 1.0 % | 0.80 % | 100 | 32 | trend holds |" in text
    assert "| ResNet-32 | CIFAR-100 | +6.9 % | +9.5 ± 1.0 % | 0.80 % | 100 | 32 | does not hold |" in text
    assert "| ResNet-56 | CIFAR-10 | +7.1 % |  |  |  |  | not run here |" in text
