from __future__ import annotations

import re
from pathlib import Path

import pytest

from icda.models import MODELS
from icda.registry import UnknownNameError
from icda_bench.cost import network_cost
from icda_bench.cost.network_cost import (
    CostRow,
    add_to_csv,
    cost_table,
    load_cost_suite,
    measure_network_cost,
    read_costs,
)
from icda_bench.cost.step_cost import StepCostRow

PAPER = Path(__file__).resolve().parents[4] / "shared" / "paper.tex"


def row(network: str = "resnet32", classes: int = 10, tier: str = "cpu", extra: float = 5.0) -> CostRow:
    return CostRow(network, classes, tier, 32, 15, 100.0, 105.0, extra, 1.0, 0.8)


def test_every_network_of_the_papers_table_is_known() -> None:
    assert all(row["network"] in MODELS for row in load_cost_suite()["rows"])


def test_the_papers_figures_stand_in_the_paper() -> None:
    if not PAPER.is_file():
        pytest.skip(f"{PAPER} is not there: the figures were not compared with the paper.")
    text = PAPER.read_text()
    table = text[: text.index("\\label{table3}")].rpartition("\\begin{table")[2]
    lines = [re.findall(r"(\d\.\d)\\%", line) for line in table.splitlines()]
    assert [[float(x) for x in line] for line in lines if line] == [row["paper"] for row in load_cost_suite()["rows"]]


def test_extra_time_and_noise_come_from_paired_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    def pretend(name: str, classes: int, batch: int, steps: int, seconds: float) -> StepCostRow:
        assert (batch, steps) == (4, 3)
        return StepCostRow(name, 1, classes, 64, "full", batch, 3, 10.0, 10.6, 0.1, 6.0, 2.0, 10.0, 1.0, 0.5)

    monkeypatch.setattr(network_cost, "measure_step", pretend)
    said: list[str] = []
    found = measure_network_cost("smoke", (), said.append)
    assert [(row.network, row.classes, row.extra, row.noise) for row in found] == [
        ("resnet32", 10, 6.0, 4.0),
        ("resnet32", 100, 6.0, 4.0),
    ]
    assert len(said) == 2


def test_steps_are_really_timed() -> None:
    first, second = measure_network_cost("smoke", ["resnet32"], lambda _: None)
    assert first.base_ms > 0
    assert (first.classes, second.classes) == (10, 100)


def test_a_network_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="no network 'resnet8'"):
        measure_network_cost("smoke", ["resnet8"], lambda _: None)


def test_measuring_again_takes_the_place_of_what_was_measured_before(tmp_path: Path) -> None:
    path = tmp_path / "table3.csv"
    add_to_csv([row(), row("wrn_16_8")], path)
    add_to_csv([row(extra=7.0), row(tier="paper", extra=6.0)], path)
    assert [(line["tier"], line["network"], line["extra"]) for line in read_costs(path)] == [
        ("cpu", "resnet32", "7.0"),
        ("cpu", "wrn_16_8", "5.0"),
        ("paper", "resnet32", "6.0"),
    ]


def test_the_table_has_the_paper_ours_and_a_status(tmp_path: Path) -> None:
    path = tmp_path / "table3.csv"
    add_to_csv([row(extra=7.5), row(classes=100, extra=9.5)], path)
    text = cost_table(read_costs(path))
    assert "| ResNet-32 | CIFAR-10 | +6.9 % | +7.5 ± 1.0 % | 0.80 % | 100 | 32 | trend holds |" in text
    assert "| ResNet-32 | CIFAR-100 | +6.9 % | +9.5 ± 1.0 % | 0.80 % | 100 | 32 | does not hold |" in text
    assert "| ResNet-56 | CIFAR-10 | +7.1 % |  |  |  |  | not run here |" in text
