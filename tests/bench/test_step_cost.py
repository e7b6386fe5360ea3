"""Table 3: what is measured and how it is put together. No figure of this machine is asserted."""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from icda.bench import step_cost
from icda.bench.speed import write_csv
from icda.bench.step_cost import PAPER, StepCostRow, measure_step_cost, to_step_cost_table
from icda.models import MODELS
from icda.registry import UnknownNameError


@pytest.fixture(scope="module")
def rows() -> list[StepCostRow]:
    said: list[str] = []
    found = measure_step_cost(["resnet8"], batch_size=4, steps=3, say=said.append)
    assert said == ["resnet8, batch 4, 10 classes", "resnet8, batch 4, 100 classes"]
    return found


def test_a_network_is_measured_with_ten_and_a_hundred_classes(rows: list[StepCostRow]) -> None:
    assert [(row.classes, row.features, row.covariance, row.batch, row.rounds) for row in rows] == [
        (10, 64, "full", 4, 3),
        (100, 64, "full", 4, 3),
    ]
    assert rows[1].parameters - rows[0].parameters == 90 * 65
    assert all(row.ce_ms > 0 and row.icda_ms > 0 and row.low <= row.direct <= row.high for row in rows)
    assert all(row.paper is None for row in rows)


def test_figures_are_made_of_paired_steps_and_of_the_loss_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 100, 200 and 400 ms, to which ICDA adds 2, 4 and 6 per cent; the loss alone adds 1 ms, 4 ms at 128."""
    rounds = iter([(0.1, 0.102), (0.2, 0.208), (0.4, 0.424)])
    heads = {8: 0.001, 128: 0.004}

    def interleave(steps: dict[str, Any], rounds_: int = 0, warm_up: int = 3, **given: int) -> dict[str, list[float]]:
        pairs = [next(rounds) for _ in range(given.get("rounds", rounds_))]
        return {"ce": [a for a, _ in pairs], "icda": [b for _, b in pairs]}

    def head(classes: int, features: int, batch: int, covariance: str) -> float:
        assert (classes, features, covariance) == (10, 64, "full")
        return heads[batch]

    monkeypatch.setattr(step_cost, "interleave", interleave)
    monkeypatch.setattr(step_cost, "head_extra_seconds", head)
    (row,) = measure_step_cost(["resnet32"], batch_size=8, steps=3, classes=[10])
    assert (row.direct, row.low, row.high) == (4.0, 3.0, 5.0)
    assert (row.ce_ms, row.icda_ms, row.head_extra_ms) == (200.0, 208.0, 1.0)
    assert row.head == 0.5
    assert row.head_at_128 == 0.125, "4 ms of a step that takes sixteen times 200"
    assert row.paper == 6.9


def test_the_paper_s_figures_are_those_of_its_table() -> None:
    """Where the paper lies beside the repository, its own source is compared."""
    assert all(name in MODELS for name in PAPER)
    source = Path(__file__).parents[3] / "shared" / "paper.tex"
    if not source.exists():
        pytest.skip("the paper's source is not here")
    text = source.read_text()
    table = text[text.index("Additional cost") : text.index("label{table3}")]
    lines = re.findall(r"^([\w -]+?)\s*&\s*([\d.]+)M.*?([\d.]+)\\%\}\s*&\s*([\d.]+)\\%", table, re.MULTILINE)
    found = {
        name.replace("Wide ResNet", "wrn").lower().replace("densenet-bc", "densenet_bc").replace("-", "_"): (
            float(ten),
            float(hundred),
        )
        for name, _, ten, hundred in lines
    }
    ours = {re.sub(r"^resnet", "resnet_", name): (row.ten, row.hundred) for name, row in PAPER.items()}
    assert found == ours


def test_a_covariance_that_does_not_fit_is_diagonal_and_the_row_says_so(recwarn: pytest.WarningsRecorder) -> None:
    (row,) = measure_step_cost(["linear"], batch_size=2, steps=3, classes=[10], seconds=0.01)
    assert (row.features, row.covariance, row.rounds) == (3072, "diagonal", 3)
    assert len(recwarn) == 0


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            {"models": ["mlp"]},
            UnknownNameError,
            r"'mlp' is not in table 3 \(resnet32, .*wrn_28_10\): give a batch_size",
        ),
        ({"batch_size": 1}, ValueError, "batch_size must be 2 or more"),
        ({"steps": 2}, ValueError, "steps must be 3 or more"),
        ({"seconds": 0}, ValueError, "seconds positive, got 15 and 0"),
    ],
)
def test_what_cannot_be_measured_is_refused_first(
    given: dict[str, Any], error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    never: Callable[..., Any] = lambda *_: pytest.fail("measured all the same")  # noqa: E731
    monkeypatch.setattr(step_cost, "_measure", never)
    with pytest.raises(error, match=message):
        measure_step_cost(**given)


def test_the_table_and_the_file_hold_every_figure(rows: list[StepCostRow], tmp_path: Path) -> None:
    console = Console(width=200, record=True)
    console.print(to_step_cost_table(rows))
    text = console.export_text()
    for row in rows:
        assert all(str(figure) in text for figure in (row.ce_ms, row.icda_ms, row.direct, row.head, row.head_at_128))
    assert "None" not in text
    write_csv(rows, tmp_path / "step_cost.csv")
    with (tmp_path / "step_cost.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [float(line["direct"]) for line in lines] == [row.direct for row in rows]
    assert {"processor", "torch", "commit"} <= lines[0].keys()
