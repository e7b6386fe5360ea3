"""The lowest versions that pyproject.toml allows, as a constraints file: `python tools/lowest_versions.py > FILE`.

pip installs the newest versions it may; with these constraints it installs the oldest that icda claims to work with.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
FLOOR = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?\s*>=\s*(?P<version>[0-9][^,;\s]*)")


def lowest(requirements: Iterable[str]) -> Iterator[str]:
    """`name==floor` for every requirement that has a floor.

    >>> list(lowest(["torch>=2.6", "icda[hf,audit]", "pandas >= 2.2, <4", "types-PyYAML"]))
    ['torch==2.6', 'pandas==2.2']
    """
    for requirement in requirements:
        if found := FLOOR.match(requirement):
            yield f"{found['name']}=={found['version']}"


def floors(pyproject: Path = PYPROJECT) -> list[str]:
    """The floors of the package and of its extras, each once."""
    project = tomllib.loads(pyproject.read_text())["project"]
    extras = project.get("optional-dependencies", {})
    return sorted(set(lowest(chain(project["dependencies"], *extras.values()))))


if __name__ == "__main__":
    print("\n".join(floors()))
