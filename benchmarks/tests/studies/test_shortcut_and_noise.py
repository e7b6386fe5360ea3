"""The study of a shortcut and wrong labels at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from icda.strength import Strength
from icda.training import TrainConfig, train
from icda.training.run import load_folder
from icda_bench.studies import shortcut_and_noise
from icda_bench.studies.row_file import read_row_file
from icda_bench.studies.shortcut_and_noise import (
    Arguments,
    ShortcutAndNoiseRow,
    main,
    separations,
    shortcut_and_noise_table,
)


def test_rows_are_kept_and_nothing_is_run_twice(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    options = Arguments(out, seeds=1, epochs=1)
    main(options)
    rows = read_row_file(out, ShortcutAndNoiseRow)
    assert [row.form for row in rows] == list(shortcut_and_noise.FORMS)
    assert all(0 <= row.withdraws_wrong <= 1 for row in rows if row.form != "ce")
    main(options)
    assert len(read_row_file(out, ShortcutAndNoiseRow)) == 3


def test_strengths_that_know_both_kinds_separate_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainConfig(
        task="digits_coloured_noise", method="meta_icda_signed", model="mlp", epochs=1, out=str(tmp_path)
    )
    train(config)
    _, task, _, _ = load_folder(tmp_path)
    colours = task.train.groups % 2  # groups are class x colour
    clean = task.train.clean_targets
    known = torch.where(task.train.targets != clean, -1.0, (colours != clean).float())
    monkeypatch.setattr(shortcut_and_noise, "sample_strengths", lambda method, seen: Strength(seen.logits, known))
    assert separations(tmp_path) == (1.0, 1.0)


def test_the_table_leaves_out_what_a_method_does_not_have() -> None:
    nothing = float("nan")
    rows = [
        ShortcutAndNoiseRow("ce", 0, 0.7, 0.5, nothing, nothing),
        ShortcutAndNoiseRow("signed", 0, 0.7, 0.5, 0.1, 0.4),
    ]
    lines = shortcut_and_noise_table(rows).splitlines()
    assert lines[2].startswith("| CE |")
    assert lines[2].endswith("|  |  |")
    assert "nan" not in shortcut_and_noise_table(rows)
