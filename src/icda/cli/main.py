"""`icda`: one word a command, one file a command."""

import importlib
import os
import platform
import shlex
import sys
import traceback
import warnings
from collections.abc import Sequence

from icda import plugins
from icda.cli import COMMANDS, Command, overview
from icda.cli.environment import prepare_arithmetic
from icda.errors import IcdaError
from icda.registry import did_you_mean
from icda.results.foreign_text import printable

# Idle OpenMP threads that spin slow a shared machine down many times over; must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # the profiler that counts memory would talk of itself
warnings.filterwarnings("ignore", message=r".*torch\.jit\.script", category=DeprecationWarning)  # torch's own

BUILT_IN = {
    "demo": "compare CE, LA, ISDA, ICDA, Meta-ICDA and robust on four small tasks that ship with icda",
    "fit": "make a classifier from your images, texts, features or table: embed, audit, treat, and one page about it",
    "ask": "show you the samples that say most about a shortcut, and take your answers",
    "predict": "write what a fitted or trained model says of new inputs, one row per input",
    "export": "write a fitted or trained model as ONNX, or its weights as safetensors",
    "train": "train a classifier on a task, or on your own folder or CSV",
    "eval": "evaluate a model that `icda fit` or `icda train` wrote",
    "audit": "find samples tied to a wrong class, doubtful labels and long tails in features, before group labels exist",
    "report": "write one page about runs, a comparison or a table of results",
    "explain": "draw margins, mapped variances, Grad-CAM and counterfactual pictures of runs",
    "embed": "turn a folder of images, or a CSV of images or texts, into a file of features",
    "list": "show tasks, methods, models and selection rules",
    "tune": "search a method's options and learning rate on validation data",
}

GROUPS = {  # of the overview; commands from outside come last
    "start here": ("demo", "fit", "ask", "predict"),
    "look": ("audit", "report", "explain", "eval"),
    "train": ("train", "tune", "list"),
    "more": (),
}
HOW_TO_INSTALL = {"bench": "`icda bench` is the package icda-bench: pip install ./benchmarks in a checkout of icda."}
AFTER_INTERRUPT = {  # a command from outside says it itself, as the text of its KeyboardInterrupt
    "train": "`--resume` goes on from the last checkpoint.",
    "embed": "`--resume` goes on from the chunks that are done.",
    "fit": "The same command goes on where it stopped.",
    "demo": "The same command, without --fresh, goes on where it stopped.",
    "tune": "The same command goes on where it stopped.",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `icda` command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if words[0] in ("-V", "--version"):
        from icda._version import __version__

        print(f"icda {__version__}")
        return 0
    try:
        prepare_arithmetic(words)  # before torch is imported, with the command
        with warnings.catch_warnings():
            warnings.showwarning = _show_plainly
            rest = plugins.take(words[1:])
            command = _find(words[0])
            return 2 if command is None else int(command(rest))
    except KeyboardInterrupt as interrupt:
        print(f"icda: interrupted. {str(interrupt) or AFTER_INTERRUPT.get(words[0], '')}".rstrip(), file=sys.stderr)
        return 130
    except Exception as error:
        if os.environ.get("ICDA_TRACEBACK"):
            raise
        print(printable(_sentence(error) or _bug_report(words)), file=sys.stderr)
        return 1


def _find(name: str) -> Command | None:
    """The function behind a command; None, and a sentence, for a word that is none."""
    if name in BUILT_IN:
        return importlib.import_module(f"icda.cli.{name}").main
    if name in COMMANDS:
        return COMMANDS.get(name)
    known = [*BUILT_IN, *COMMANDS]
    unknown = f"unknown command {name!r}: {did_you_mean(name, known, 'icda {}'.format)}Commands: {', '.join(known)}."
    print(f"icda: {HOW_TO_INSTALL.get(name, unknown)}", file=sys.stderr)
    return None


def _sentence(error: Exception) -> str | None:
    """One line that says it all: for icda's own errors, the system's (which file, and why), and full memory."""
    if isinstance(error, IcdaError) or (isinstance(error, OSError) and error.errno is not None):
        return f"icda: {error}"
    # Torch's error is known by its name: the command line does not load torch to compare.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        details = str(error).strip().splitlines()  # Python's own MemoryError says nothing
        return f"icda: out of memory{f' ({details[0]})' if details else ''}: take smaller batches, images or data."
    return None


def _bug_report(words: Sequence[str]) -> str:
    """The traceback of an error nobody foresaw, and what a report of it should hold."""
    from icda._version import __version__

    torch = sys.modules.get("torch")
    others = f" or in {', '.join(used)}" if (used := plugins.versions()) else ""
    return "\n".join(
        [
            traceback.format_exc().rstrip(),
            "",
            f"icda: this is a mistake in icda{others}, not in what you typed. "
            "Please report it with the traceback above and:",
            f"  command: icda {shlex.join(words)}",
            f"  icda {__version__}, Python {platform.python_version()}, "
            f"torch {getattr(torch, '__version__', 'not loaded')}, {platform.platform()}",
        ]
    )


def _show_plainly(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: object = None,
    line: object = None,
) -> None:
    """A warning about a plugin as one sentence; others as Python writes them."""
    plain = issubclass(category, plugins.PluginWarning)
    text = f"icda: {message}\n" if plain else warnings.formatwarning(message, category, filename, lineno)
    print(printable(text), end="", file=sys.stderr)


def _overview() -> str:
    """What each command does; one of a plugin says it in the first line of its docstring."""
    known, grouped = dict(BUILT_IN), []
    for name in COMMANDS:
        try:
            lines = (COMMANDS.get(name).__doc__ or "").strip().splitlines()
        except plugins.PluginError as error:  # one broken package must not hide the other commands
            lines = [printable(str(error))]
        known[name] = lines[0] if lines else f"a command of {COMMANDS.owner(name)}"
    for title, names in GROUPS.items():
        own = {name: known.pop(name) for name in names} if names else known
        grouped += [f"{title}:", overview(own), ""]
    return "\n".join(
        [
            "usage: icda COMMAND [OPTIONS]",
            "",
            "Train classifiers on biased data so that they stay right when the bias is gone.",
            "",
            *grouped,
            "`--plugin FILE.py`, on any command, adds your own methods, tasks, metrics, ...",
            "`icda COMMAND --help` shows a command's options.",
            "ICDA_TRACEBACK=1 shows where an error arose.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
