"""Fixtures that several rooms share."""

import importlib.util
import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
import torch


@pytest.fixture(scope="session")
def ask_rank():
    """`ask_rank(rank, request)`: hand a request to the process of distributed.py that is this rank's parent."""
    parents: dict[int, subprocess.Popen[str]] = {}
    command = [sys.executable, "-P", str(Path(__file__).with_name("distributed.py"))]

    def ask(rank: int, request: dict[str, Any]) -> IO[str]:
        if rank not in parents:
            parents[rank] = subprocess.Popen(
                [*command, str(rank)],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        questions, answers = parents[rank].stdin, parents[rank].stdout
        print(json.dumps(request), file=questions, flush=True)
        return answers

    yield ask
    for process in parents.values():
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def run_on_ranks(ask_rank, tmp_path_factory):
    """`run_on_ranks(function, world_size)`: what function(rank) of a test file returned on every gloo rank."""

    def run(function: Callable[[int], Any], world_size: int = 2) -> list[Any]:
        folder, ranks = tmp_path_factory.mktemp("ranks"), range(world_size)
        request = {
            "file": inspect.getsourcefile(function),
            "function": function.__name__,
            "world_size": world_size,
            "folder": str(folder),
            "environment": {**os.environ, "OMP_NUM_THREADS": "1"},
        }
        answers = [ask_rank(rank, request) for rank in ranks]
        codes = [answer.readline().strip() for answer in answers]
        failed = [(folder / f"rank{rank}.txt").read_text() for rank in ranks if codes[rank] != "0"]
        assert not failed, "\n".join([f"exit codes {codes}", *failed])
        return [torch.load(folder / f"rank{rank}.pt") for rank in ranks]

    return run


@pytest.fixture(scope="module")
def ray_engine():
    """A Ray of two processes for all tests of a file, commands with `--on ray` included: they use the one that is there."""
    pytest.importorskip("ray")
    from icda.engines import OnRay

    with OnRay(jobs=2) as engine:
        yield engine


# No sandbox, as containers have none, and no calls of its own.
BROWSER_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium without a window. Without it tests skip loudly; in CI, and where make has seen it, they fail."""
    missing = "" if shutil.which("chromium") else "Chromium"
    missing = missing if importlib.util.find_spec("playwright") else "playwright"
    if missing:
        reason = f"THE PAGES WERE NOT OPENED IN A BROWSER: {missing} is missing. `make browser` installs it."
        if os.environ.get("CI") or os.environ.get("ICDA_REQUIRE_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=shutil.which("chromium"), args=list(BROWSER_ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser, pages):
    """`open_page("run", width=390)`, of a file's own `pages`; at the end none may have complained or asked for anything."""
    complaints: list[str] = []
    contexts = []

    def open_it(name: str, width: int = 1280, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: complaints.append(f"request: {request.url}"))
        page.goto(pages[name].as_uri())
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert [said for said in complaints if not said.startswith(("request: file:", "request: data:"))] == []


@pytest.fixture
def register_entry(monkeypatch):
    """`register_entry(registry, name, entry)`: a throw-away entry under a name of its own, forgotten after the test."""

    def register(registry: Any, name: str, entry: Any) -> str:
        list(registry)  # the first look-up fills the registry
        monkeypatch.setitem(registry._entries, name, entry)
        monkeypatch.setitem(registry._aliases, name, name)
        return name

    return register


@pytest.fixture
def register_method(register_entry):
    """`register_method(name, cls)`: the same for a method."""
    from icda.methods import METHODS

    return lambda name, cls: register_entry(METHODS, name, cls)


@pytest.fixture
def train_for():
    """`train_for(config, steps)`: a run that ends without warning after so many steps, as if killed."""
    from icda.training import TrainConfig, train
    from icda.training.progress import ProgressView

    class Stopped(BaseException):
        """Stands for a kill; no handler of ordinary errors sees it."""

    class StoppingView(ProgressView):
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


@pytest.fixture
def configure(tmp_path):
    """`configure(name, **settings)`: three epochs of five batches on digits_lt, files under tmp_path/name."""
    from icda.training import TrainConfig

    def make(name, **settings):
        return TrainConfig(**{"epochs": 3, "batch_size": 64, "out": str(tmp_path / name), **settings})

    return make


@pytest.fixture
def assert_same_run():
    """`assert_same_run(one, other)`: bit-identical checkpoint, model and result, and a log line per epoch."""
    from icda.training.checkpoint import load_checkpoint
    from support import assert_same

    def check(one, other):
        for name in ("checkpoint.pt", "model.pt"):
            assert_same(load_checkpoint(one / name), load_checkpoint(other / name), name)
        results = [json.loads((folder / "result.json").read_text()) for folder in (one, other)]
        assert_same(*results, "result")
        for folder, result in zip((one, other), results, strict=True):
            lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
            assert lines == result["history"]
            assert [line["epoch"] for line in lines] == list(range(len(lines)))

    return check


@pytest.fixture
def assert_resumes(configure, train_for, assert_same_run):
    """`assert_resumes(kills, **settings)`: killed after so many steps each time and resumed, a run ends as a whole one.

    The whole run is made unless its folder is given; `every` is how often the other one writes a checkpoint.
    """
    from icda.training import train

    def check(*kills, every=2, whole=None, **settings):
        if whole is None:
            whole = configure("whole", **settings).folder()
            train(configure("whole", **settings))
        config = configure("stopped", checkpoint_every=every, **settings)
        for steps in kills:
            train_for(config, steps, resume=True)
            torch.rand(17)  # what happens between a kill and the resumption must not matter
        train(config, resume=True)
        assert_same_run(whole, config.folder())
        return whole

    return check
