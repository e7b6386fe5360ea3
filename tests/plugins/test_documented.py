"""The page "Extending icda" shows the package that the tests install, to the letter."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs/extending.md").read_text()
BLOCKS = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE))
FILES = [path for path in sorted((HERE / "example_package").rglob("*.*")) if path.name != "__init__.py"]
SHOWN = [path for path in FILES if path.suffix in (".py", ".toml")]


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_the_page_shows_the_file_that_is_tested(path):
    assert BLOCKS[path.relative_to(HERE / "example_package").as_posix()] == path.read_text()


def test_the_page_shows_no_file_that_is_not_tested():
    assert set(BLOCKS) == {path.relative_to(HERE / "example_package").as_posix() for path in SHOWN} | {"mine.py"}


def test_the_plugin_file_of_the_page_is_a_method_that_trains(tmp_path, monkeypatch, forget):
    from icda.training import TrainConfig, train

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(BLOCKS["mine.py"])
    config = TrainConfig(method="half_loss", options={"share": 0.25}, epochs=1, plugin=("mine.py",), out="run")
    assert train(config)["metrics"]["accuracy"] > 0
