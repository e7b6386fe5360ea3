"""AUROCs for wrong labels, read off finished runs, against loops over pairs of samples."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from icda.errors import InputError
from icda.methods.twin_labels import TwinLabels
from icda.training import TrainConfig, train
from icda.training.run import load_folder
from icda_bench.rows import read_rows
from icda_bench.studies.mistakes import Arguments, MistakesRow, measure_mistakes, mistakes_table, run

METHODS = ("cross_entropy", "icda", "twin_labels", "meta_icda_signed")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    places = [tmp_path_factory.mktemp(method) for method in METHODS]
    for place, method in zip(places, METHODS, strict=True):
        train(TrainConfig(task="digits_flip_noise", method=method, model="mlp", epochs=3, out=str(place)))
    return places


@pytest.fixture(scope="module")
def rows(folders: list[Path]) -> dict[str, MistakesRow]:
    return {row.method: row for row in measure_mistakes(folders)}


def pairs(scores: Tensor, wrong: Tensor) -> float:
    """How often a wrong label has the higher score, over all pairs."""
    gaps = scores[wrong][:, None] - scores[~wrong][None]
    return float(((gaps > 0).double() + 0.5 * (gaps == 0)).mean())


def test_each_method_has_the_figures_that_it_knows(rows: dict[str, MistakesRow]) -> None:
    known = {method: (row.held_out is not None, row.strength is not None) for method, row in rows.items()}
    assert known == {
        "cross_entropy": (False, False),
        "icda": (False, True),
        "twin_labels": (True, False),
        "meta_icda_signed": (False, True),
    }
    assert all(row.loss is not None and row.wrong == pytest.approx(0.4, abs=0.03) for row in rows.values())


def test_held_out_answers_and_losses_are_those_of_loops_over_pairs(
    folders: list[Path], rows: dict[str, MistakesRow]
) -> None:
    _, task, networks, method = load_folder(folders[2])
    assert isinstance(method, TwinLabels)
    wrong = task.train.targets != task.train.clean_targets
    for name, logits in (
        ("held_out", method.evidence.logits),
        ("loss", networks[0].eval()(task.train.batch(torch.arange(len(task.train))).inputs).logits.detach()),
    ):
        unlikely = 1 - logits.double().softmax(1).gather(1, task.train.targets[:, None])[:, 0]
        assert getattr(rows["twin_labels"], name) == pytest.approx(pairs(unlikely, wrong), abs=2e-3)
    assert (rows["twin_labels"].held_out or 0) > 0.6  # three epochs of twins know more than chance


def test_rows_are_written_and_shown(
    folders: list[Path], rows: dict[str, MistakesRow], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(Arguments(tuple(folders[:1]), tmp_path / "mistakes.csv"))
    assert read_rows(tmp_path / "mistakes.csv", MistakesRow) == [rows["cross_entropy"]]
    assert f"|  |  | {rows['cross_entropy'].loss:.3f} (1) |" in capsys.readouterr().out
    assert "| Twin labels |" in mistakes_table(rows.values())


def test_a_task_without_known_mistakes_is_refused(tmp_path: Path) -> None:
    train(TrainConfig(task="digits_lt", model="linear", epochs=1, out=str(tmp_path)))
    with pytest.raises(InputError, match="digits_lt, which does not know its wrong labels"):
        measure_mistakes([tmp_path])
