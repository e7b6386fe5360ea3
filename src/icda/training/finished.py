"""Cells that are finished, known without training or torch: a finished table is shown again at once."""

from __future__ import annotations

from collections.abc import Sequence

from icda.errors import InputError
from icda.results import RunResult
from icda.results.files import REPORT, RESULT
from icda.training.config import TrainConfig


def finished_result(config: TrainConfig) -> RunResult | None:
    """The result in a cell's folder, if it was made with these very settings. Of a damaged one `train` says more."""
    path = config.folder() / RESULT
    if not path.is_file():
        return None
    try:
        result = RunResult.read(path)
    except InputError:
        return None
    return result if result.config_hash == config.hash() else None


def all_finished(configs: Sequence[TrainConfig]) -> list[RunResult] | None:
    """The results of all cells; None if there is something left to do for one of them."""
    results: list[RunResult] = []
    for config in configs:
        result = finished_result(config) if (config.folder() / REPORT).exists() else None
        if result is None:
            return None
        results.append(result)
    return results
