"""The command line. Packages and plugins add commands of their own to `COMMANDS`."""

import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence

from icda.registry import Registry

Command = Callable[[Sequence[str]], int]  # the words after its name in, the exit code out; its docstring is its help
COMMANDS: Registry[Command] = Registry("command", group="icda.commands", shapes_results=False)


def overview(entries: Mapping[str, str], columns: int | None = None) -> str:
    """One line per name; a text that is longer goes on below itself, and no word is cut.

    >>> print(overview({"train": "train a classifier", "list": "show the names"}, columns=20))
      train  train a
             classifier
      list   show the
             names
    """
    columns = shutil.get_terminal_size().columns if columns is None else columns
    indent = max(map(len, entries)) + 4
    wrapped = {name: textwrap.wrap(text, max(columns - indent, 10)) for name, text in entries.items()}
    lines = []
    for name, parts in wrapped.items():
        lines.append(f"  {name}".ljust(indent) + parts[0])
        lines += [" " * indent + part for part in parts[1:]]
    return "\n".join(lines)
