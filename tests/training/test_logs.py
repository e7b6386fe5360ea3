import json
import sys
from pathlib import Path

import pytest

from icda.extras import MissingExtraError
from icda.results import EpochRecord
from icda.training.progress import EpochLog

RECORDS = [EpochRecord(epoch, "train", 1.0 / (epoch + 1), figures={"none": None}) for epoch in range(3)]


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_each_epoch_is_a_line_as_soon_as_it_is_over(tmp_path: Path) -> None:
    log = EpochLog(tmp_path, [])
    for count, record in enumerate(RECORDS, start=1):
        log.write(record)
        assert lines(tmp_path) == RECORDS[:count]
    log.close()
    assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]


def test_a_resumed_log_forgets_what_its_checkpoint_does_not_remember(tmp_path: Path) -> None:
    first = EpochLog(tmp_path, [])
    for record in RECORDS:
        first.write(record)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"epoch": 3, "tra')  # cut off by a kill
    second = EpochLog(tmp_path, RECORDS[:2])
    second.write(EpochRecord(2, train_loss=0.5))
    assert lines(tmp_path) == [*RECORDS[:2], EpochRecord(2, train_loss=0.5)]


def test_tensorboard_gets_every_number_at_its_epoch(tmp_path: Path) -> None:
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


def test_a_missing_tensorboard_is_said_with_the_extra_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtraError, match=r'pip install "icda\[tensorboard\]"'):
        EpochLog(tmp_path, [], tensorboard=True)
