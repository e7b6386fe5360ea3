"""The floors of pyproject.toml, as `make test-lowest` installs them."""

import tomllib
from pathlib import Path

from support import load_module

ROOT = Path(__file__).parents[1]
TOOL = load_module(ROOT / "tools/lowest_versions.py", "lowest_versions")


def test_every_dependency_has_a_floor_that_is_installed_as_such():
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {text.replace(">=", "==") for text in dependencies} <= set(TOOL.floors())


def test_extras_markers_and_ceilings_are_read():
    given = ["a>=1", "b-c[d,e] >= 2.5, <3", 'f>=4.0; python_version < "3.12"', "icda[a,b]", "no-floor", "g==7"]
    assert list(TOOL.lowest(given)) == ["a==1", "b-c==2.5", "f==4.0"]


def test_a_package_of_several_extras_is_named_once(tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text('[project]\ndependencies = ["a>=1"]\n[project.optional-dependencies]\nx = ["b>=2"]\ny = ["b>=2"]\n')
    assert TOOL.floors(file) == ["a==1", "b==2"]
