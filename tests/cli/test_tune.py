from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")

WORDS = ("tune", "--task", "digits_lt", "--method", "icda", "--model", "linear", "--epochs", 1)


def test_tune_names_the_best_values_and_the_call_that_trains_with_them(icda: Any) -> None:
    answer = icda(*WORDS, "--trials", 2, "--space", "lambda0=0.1:1.0", "beta=0:0.5")
    assert answer.code == 0, answer.err
    assert "trial 2 of 2" in answer.text
    assert "best of 2: validation accuracy" in answer.text
    best = Path("runs/tune/digits_lt/icda/seed0/best.yaml")
    assert f"icda train --config {best}" in answer.text
    assert icda("train", "--config", best, "--quiet").code == 0


def test_tune_without_a_space_or_with_no_trials_is_refused(icda: Any) -> None:
    assert "--space is empty" in icda(*WORDS).err
    assert "--trials must be at least 1" in icda(*WORDS, "--trials", 0, "--space", "beta=0:1").err


def test_tune_without_validation_data_is_refused(icda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from icda.data import create_task
    from icda.training import tuning as tune

    monkeypatch.setattr(tune, "load_task", lambda config: replace(create_task(config.task), validation=None))
    answer = icda(*WORDS, "--space", "beta=0:1")
    assert answer.code == 1
    assert "no validation split, and test data must not choose" in answer.text
