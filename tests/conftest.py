"""Fixtures that several rooms share."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icda.bf16 import avoid_amx

# Each xdist worker has one core; spinning OpenMP threads would starve its neighbour.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
avoid_amx()  # many tests compute in bf16, in this process and in children

import torch  # noqa: E402  (reads the environment when it is loaded)


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def run_on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Any]]:
    """`run_on_ranks(function, world_size)`: what function(rank) of a test file returned on every gloo rank."""

    def run(function: Callable[[int], Any], world_size: int = 2) -> list[Any]:
        folder = tmp_path_factory.mktemp("ranks")
        script, file = Path(__file__).with_name("distributed.py"), inspect.getsourcefile(function)
        command = [sys.executable, "-P", str(script), str(file), function.__name__]
        ranks = [
            subprocess.Popen(
                [*command, str(rank), str(world_size), str(folder)],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(world_size)
        ]
        try:
            outputs = [process.communicate(timeout=120)[0] for process in ranks]
        finally:
            for process in ranks:
                process.kill()
        failed = [output for process, output in zip(ranks, outputs, strict=True) if process.returncode != 0]
        assert not failed, "\n".join(failed)
        return [torch.load(folder / f"rank{rank}.pt") for rank in range(world_size)]

    return run


@pytest.fixture
def register_method(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, type[Any]], str]:
    """`register_method(name, cls)`: a throw-away method under a name of its own, forgotten after the test."""
    from icda.methods import METHODS

    list(METHODS)  # the first look-up fills the registry

    def register(name: str, cls: type[Any]) -> str:
        monkeypatch.setitem(METHODS._entries, name, cls)
        monkeypatch.setitem(METHODS._aliases, name, name)
        return name

    return register


@pytest.fixture
def train_for() -> Callable[..., None]:
    """`train_for(config, steps)`: a run that ends without warning after so many steps, as if killed."""
    from icda.training import TrainConfig, train
    from icda.training.progress import QuietView

    class Stopped(BaseException):
        """Stands for a kill; no handler of ordinary errors sees it."""

    class StoppingView(QuietView):
        """Stops the training after a number of steps."""

        def __init__(self, steps: int) -> None:
            self.steps = steps

        def step(self, *_: Any) -> None:
            self.steps -= 1
            if self.steps == 0:
                raise Stopped

    def run(config: TrainConfig, steps: int, **how: Any) -> None:
        with pytest.raises(Stopped):
            train(config, view=StoppingView(steps), **how)

    return run
