import io
from dataclasses import replace

import pytest
from rich.console import Console

from icda.results import EpochRecord
from icda.training.progress import ProgressView, TerminalView

RECORD = EpochRecord(0, train_loss=1.5, train_accuracy=0.25, validation={"accuracy": None})


def show(terminal: bool, record: EpochRecord = RECORD) -> str:
    output = io.StringIO()
    view = TerminalView(Console(file=output, force_terminal=terminal, width=160))
    with view:
        view.start(4, 10)
        view.step(0, 2, 1.25, 0.5)
        view.step(0, 2, 1.25, None)
        view.epoch(record, 2)
    return output.getvalue()


def test_without_a_terminal_an_epoch_is_a_line_and_a_step_is_none() -> None:
    assert show(terminal=False) == "epoch 1/2: loss 1.5000, train accuracy 0.2500\n"


def test_validation_accuracy_is_shown_where_there_is_one() -> None:
    assert show(False, replace(RECORD, validation={"accuracy": 0.75})).endswith("validation accuracy 0.7500\n")


def test_a_terminal_shows_steps_done_since_the_resume_loss_and_epoch() -> None:
    printed = show(terminal=True)
    assert "6/10" in printed
    assert "epoch 1/2" in printed
    assert "loss 1.250" in printed


def test_the_bar_is_taken_down_when_training_fails() -> None:
    view = TerminalView(Console(file=io.StringIO(), force_terminal=True))
    with pytest.raises(RuntimeError), view:
        raise RuntimeError
    assert view.bar.finished or not view.bar.live.is_started


def test_the_quiet_view_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressView() as view:
        view.start(0, 1)
        view.step(0, 1, 1.0, None)
        view.epoch(RECORD, 1)
    assert capsys.readouterr() == ("", "")
