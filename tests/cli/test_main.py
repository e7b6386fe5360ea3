import ast
import builtins
import errno
import importlib
import inspect
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import torch

from icda import __version__, errors
from icda.cli import main
from icda.extras import MissingExtraError
from icda.training import TrainConfig
from icda.training.trainer import DivergedError


def options_of(command):
    """Fields of its arguments; those of a run stand for the run."""
    known = fields(getattr(importlib.import_module(f"icda.cli.{command}"), f"{command.capitalize()}Arguments"))
    return [
        *(field for field in known if (command, field.name) not in RUNS),
        *(RUN if (command, "run") in RUNS else ()),
    ]


RUNS = (("train", "run"), ("tune", "run"))
RUN = [field for field in fields(TrainConfig) if field.name != "options"]


@pytest.mark.parametrize("words", [(), ("-h",), ("--help",)])
def test_the_overview_names_every_command_in_80_columns(words, icda, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    answer = icda(*words).worked()
    unwrapped = " ".join(answer.out.split())
    assert all(f"{name} {summary}" in unwrapped for name, summary in main.BUILT_IN.items())
    assert max(map(len, answer.out.splitlines())) <= 80


def test_the_version_is_that_of_the_package(icda):
    for word in ("-V", "--version"):
        assert icda(word) == (0, f"icda {__version__}\n", "")


@pytest.mark.parametrize("command", main.BUILT_IN)
def test_help_explains_every_option(command, icda):
    answer = icda(command, "--help").worked()
    for field in options_of(command):
        shown = "PATH" if "Positional" in str(field.type) else f"--{field.name.replace('_', '-')}"
        shown = "{all,tasks" if (command, field.name) == ("list", "what") else shown
        assert shown in answer.out, field.name


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["trian"], "did you mean 'icda train'?"),
        (["lsit"], "did you mean 'icda list'?"),
        (["evaluate"], "did you mean 'icda eval'?"),
        (["train", "--epoch", "3"], "--epochs INT"),
        (["train", "--learning_ratee", "0.1"], "--learning-rate FLOAT"),
        (["demo", "--sedes", "1"], "--seeds INT"),
        (["eval", "run", "--splitt", "test"], "--split"),
        (["embed", "photos", "--batchsize", "3"], "--batch-size"),
        (["list", "method"], "'methods'"),
        (["train", "--optimizer", "adm"], "'adam'"),
        (["train", "--task", "digts_lt"], "did you mean 'digits_lt'?"),
        (["train", "--method", "icad"], "did you mean 'icda'?"),
        (["train", "--model", "smallcnn"], "did you mean 'small_cnn'?"),
        (["train", "--model", "tim:resnet"], "did you mean 'timm:resnet'?"),
        (["train", "--selection", "validation_worst_clas"], "did you mean 'validation_worst_class'?"),
        (["train", "--set", "lamda0=0.5"], "did you mean 'lambda0'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_typo_gives_the_right_word_and_no_traceback(words, hint, icda):
    answer = icda(*words)
    assert answer.code != 0
    assert hint in answer.text
    assert "Traceback" not in answer.text
    assert not Path("runs").exists()


def test_a_word_like_no_command_gives_them_all(icda):
    answer = icda("xyzzy")
    assert answer.code == 2
    assert answer.err.startswith(f"icda: unknown command 'xyzzy': Commands: {', '.join(main.BUILT_IN)}")


@dataclass
class FakeCommand:
    """A command that fails in a chosen way."""

    error: BaseException

    def main(self, words):
        raise self.error


USER_ERRORS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)] + [MissingExtraError, DivergedError]


@pytest.mark.parametrize("kind", USER_ERRORS)
def test_an_error_of_icda_is_one_line_unless_a_traceback_is_asked_for(kind, icda, monkeypatch):
    monkeypatch.setattr(main.importlib, "import_module", lambda _: FakeCommand(kind("the cat sleeps on it")))
    assert icda("train") == (1, "", "icda: the cat sleeps on it\n")
    monkeypatch.setenv("ICDA_TRACEBACK", "1")
    with pytest.raises(kind, match="the cat sleeps on it"):
        icda("train")


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied", "runs/log.jsonl"),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_the_machine_lacks_is_one_line(error, icda, monkeypatch):
    monkeypatch.setattr(main.importlib, "import_module", lambda _: FakeCommand(error))
    assert icda("train") == (1, "", f"icda: {error}\n")


@pytest.mark.parametrize(
    ("error", "details"),
    [
        (MemoryError("no room for 4 GiB"), " (no room for 4 GiB)"),
        (MemoryError(), ""),
        (torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate"), " (CUDA out of memory.)"),
    ],
)
def test_a_lack_of_memory_is_said_also_where_python_says_nothing(error, details, icda, monkeypatch):
    monkeypatch.setattr(main.importlib, "import_module", lambda _: FakeCommand(error))
    sentence = f"icda: out of memory{details}: take smaller batches, images or data.\n"
    assert icda("train") == (1, "", sentence)


@pytest.mark.parametrize("kind", [ValueError, TypeError, OSError, ImportError, RuntimeError, KeyError, AssertionError])
def test_a_bug_keeps_its_traceback_and_asks_for_a_report(kind, icda, monkeypatch):
    monkeypatch.setattr(main.importlib, "import_module", lambda _: FakeCommand(kind("the cat sleeps on it")))
    answer = icda("train", "--set", "a b=1")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("Traceback (most recent call last):")
    assert "raise self.error" in answer.err
    assert f"{kind.__name__}: " in answer.err
    assert "\n  command: icda train --set 'a b=1'\n" in answer.err
    assert f"\n  icda {__version__}, Python {platform.python_version()}, torch {torch.__version__}, " in answer.err


def test_every_error_raised_in_the_source_speaks_to_the_user_or_is_python_protocol():
    """A plain ValueError in the source would be shown to users as a bug of icda."""
    protocol = {"AttributeError", "IndexError", "SystemExit"}
    plain = {
        name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
    }
    raised = [
        f"{path.name}:{node.lineno} raises {node.exc.func.id}"
        for path in Path(main.__file__).parents[1].rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name)
        if node.exc.func.id in plain - protocol
    ]
    assert not raised


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("train",), " `--resume` goes on from the last checkpoint."),
        (("embed", "photos"), " `--resume` goes on from the chunks that are done."),
        (("demo",), " The same command, without --fresh, goes on where it stopped."),
        (("tune",), " The same command goes on where it stopped."),
        (("eval", "run"), ""),
        (("audit", "x.npz"), ""),
        (("report", "runs"), ""),
        (("explain", "runs"), ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_interrupt_says_how_to_go_on_where_one_can(words, advice, icda, monkeypatch):
    monkeypatch.setattr(main.importlib, "import_module", lambda _: FakeCommand(KeyboardInterrupt()))
    assert icda(*words) == (130, "", f"icda: interrupted.{advice}\n")


def test_an_interrupt_speaks_of_resume_where_the_command_has_it():
    having = {name for name in main.BUILT_IN if any(field.name == "resume" for field in options_of(name))}
    assert having == {name for name, advice in main.AFTER_INTERRUPT.items() if "--resume" in advice}


def test_idle_threads_are_told_to_sleep_before_torch_is_loaded():
    """OpenMP reads the variable when it is loaded, with torch; set afterwards it does nothing."""
    script = """
import os, sys

class Watch:
    def find_spec(self, name, *_):
        if name == "torch":
            print("torch finds", os.environ.get("OMP_WAIT_POLICY"))

sys.meta_path.insert(0, Watch())
from icda.cli.main import main
sys.exit(main(["list", "selection"]))
"""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "torch finds PASSIVE"


def test_the_module_is_a_program_whose_exit_code_tells_failure():
    command = [sys.executable, "-m", "icda.cli.main", "trian"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'icda train'?" in done.stderr
