"""What the tests of datasets share: a short training on files that a test has written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icda.training import TrainConfig, train


@pytest.fixture
def train_briefly(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """`train_briefly("celeba", batch_size=5)`: two epochs on the task below `tmp_path`; gives the metrics."""

    def run(task: str, **settings: Any) -> dict[str, Any]:
        usual = {"epochs": 2, "learning_rate": 0.01, "out": str(tmp_path / "run")}
        result = train(TrainConfig(task=task, root=str(tmp_path), **{**usual, **settings}))
        assert len(result["history"]) == 2
        metrics: dict[str, Any] = result["metrics"]
        return metrics

    return run
