"""The command line. Packages and plugins add commands of their own to `COMMANDS`."""

from collections.abc import Callable, Sequence

from icda.registry import Registry

Command = Callable[[Sequence[str]], int]  # the words after its name in, the exit code out; its docstring is its help
COMMANDS: Registry[Command] = Registry("command", group="icda.commands", shapes_results=False)
