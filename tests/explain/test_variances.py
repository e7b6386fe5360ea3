from typing import Any

import pytest
import torch

from icda.explain.passes import run_pass
from icda.explain.variances import logged_variances, variance_figures


def test_a_pass_gives_the_variance_of_logit_differences(coloured: Any) -> None:
    seen = run_pass(coloured.method, coloured.networks, coloured.task.train)
    gap = (seen.logits[:, 1] - seen.logits[:, 0]).double()
    wanted = sum(gap[seen.targets == c].var(correction=0).item() for c in range(2)) / 2
    found = variance_figures(seen)["trained"]
    assert found["own"] == pytest.approx(wanted, rel=1e-3)
    assert found["unrelated"] is None


def test_logged_epochs_are_taken_from_the_history(long_tailed: Any) -> None:
    seen = run_pass(long_tailed.method, long_tailed.networks, long_tailed.task.train)
    history = [{"epoch": k, "mapped_variance_own": k + 1.0, "mapped_variance_unrelated": k / 2} for k in range(3)]
    found = variance_figures(seen, history)
    assert (found["epochs"], found["own"], found["unrelated"]) == ([0, 1, 2], [1.0, 2.0, 3.0], [0.0, 0.5, 1.0])
    assert found["trained"]["own"] == pytest.approx(variance_figures(seen)["own"][0])


def test_a_run_that_logged_nothing_is_measured_once_after_its_last_epoch(long_tailed: Any) -> None:
    seen = run_pass(long_tailed.method, long_tailed.networks, long_tailed.task.train)
    found = variance_figures(seen, [{"epoch": 0}, {"epoch": 1}])
    assert found["epochs"] == [1]
    assert found["own"] == [found["trained"]["own"]]
    assert logged_variances([{"epoch": 0}]) == {"epochs": [], "own": [], "unrelated": []}


def test_all_figures_are_plain_numbers(coloured: Any) -> None:
    seen = run_pass(coloured.method, coloured.networks, coloured.task.train)
    found = variance_figures(seen)
    assert found["unrelated"] == []
    assert not any(isinstance(value, torch.Tensor) for value in found["own"])
