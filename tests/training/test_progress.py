"""What a person sees of a training, and what its log says."""

import io
import json
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from icda.extras import MissingExtraError
from icda.results import EpochRecord
from icda.training.progress import EpochLog, TerminalView

RECORD = EpochRecord(0, train_loss=1.5, train_accuracy=0.25, validation={"accuracy": None})


def show(terminal, record=RECORD):
    output = io.StringIO()
    view = TerminalView(Console(file=output, force_terminal=terminal, width=160))
    with view:
        view.start(4, 10)
        view.step(0, 2, 1.25, 0.5)
        view.step(0, 2, 1.25, None)
        view.epoch(record, 2)
    return output.getvalue()


def test_without_a_terminal_an_epoch_is_a_line_and_a_step_is_none():
    assert show(terminal=False) == "epoch 1/2: loss 1.5000, train accuracy 0.2500\n"


def test_validation_accuracy_is_shown_where_there_is_one():
    assert show(False, replace(RECORD, validation={"accuracy": 0.75})).endswith("validation accuracy 0.7500\n")


def test_a_terminal_shows_steps_done_since_the_resume_loss_and_epoch():
    printed = show(terminal=True)
    assert "6/10" in printed
    assert "epoch 1/2" in printed
    assert "loss 1.250" in printed


def test_the_bar_is_taken_down_when_training_fails():
    view = TerminalView(Console(file=io.StringIO(), force_terminal=True))
    with pytest.raises(RuntimeError), view:
        raise RuntimeError
    assert view.bar.finished or not view.bar.live.is_started


RECORDS = [EpochRecord(epoch, "train", 1.0 / (epoch + 1), figures={"none": None}) for epoch in range(3)]


def lines(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_each_epoch_is_a_line_as_soon_as_it_is_over(tmp_path):
    log = EpochLog(tmp_path, [])
    for count, record in enumerate(RECORDS, start=1):
        log.write(record)
        assert lines(tmp_path) == RECORDS[:count]
    log.close()
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


def test_a_resumed_log_forgets_what_its_checkpoint_does_not_remember(tmp_path):
    first = EpochLog(tmp_path, [])
    for record in RECORDS:
        first.write(record)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"epoch": 3, "tra')  # cut off by a kill
    second = EpochLog(tmp_path, RECORDS[:2])
    second.write(EpochRecord(2, train_loss=0.5))
    assert lines(tmp_path) == [*RECORDS[:2], EpochRecord(2, train_loss=0.5)]


def test_tensorboard_gets_every_number_at_its_epoch(tmp_path):
    log = EpochLog(tmp_path, [], tensorboard=True)
    for record in RECORDS:
        log.write(record)
    log.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["train_loss"]
    assert [(event.step, event.value) for event in events.Scalars("train_loss")] == [
        (record["epoch"], pytest.approx(record["train_loss"])) for record in RECORDS
    ]


def test_a_missing_tensorboard_is_said_with_the_extra_that_brings_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtraError, match=r'pip install "icda\[tensorboard\]"'):
        EpochLog(tmp_path, [], tensorboard=True)
