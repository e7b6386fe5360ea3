"""The floors of pyproject.toml, as `make test-lowest` installs them."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lowest_versions", ROOT / "tools/lowest_versions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_dependency_has_a_floor_that_is_installed_as_such(tool: ModuleType) -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {text.replace(">=", "==") for text in dependencies} <= set(tool.floors())


def test_extras_markers_and_ceilings_are_read(tool: ModuleType) -> None:
    given = ["a>=1", "b-c[d,e] >= 2.5, <3", 'f>=4.0; python_version < "3.12"', "icda[a,b]", "no-floor", "g==7"]
    assert list(tool.lowest(given)) == ["a==1", "b-c==2.5", "f==4.0"]


def test_a_package_of_several_extras_is_named_once(tool: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[project]\ndependencies = ["a>=1"]\n[project.optional-dependencies]\nx = ["b>=2"]\ny = ["b>=2"]\n')
    assert tool.floors(file) == ["a==1", "b==2"]
