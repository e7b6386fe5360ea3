import re
import tomllib
from pathlib import Path

import pytest

from icda.extras import MissingExtraError, require

ROOT = Path(__file__).parents[1]


def test_a_package_with_a_missing_part_shows_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "lame_package.py").write_text("import not_installed_part")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="not_installed_part") as caught:
        require("lame_package", "hf", "anything")
    assert not isinstance(caught.value, MissingExtraError)


def test_every_extra_that_an_error_names_brings_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = set()
    for file in (ROOT / "src").rglob("*.py"):
        text = file.read_text()
        known = dict(re.findall(r'^(PACKAGE) = "(\w+)"', text, re.M))
        for module, extra in re.findall(r'\brequire\("?(PACKAGE|[\w.]+)"?, "(\w+)", ', text):
            found.add((known.get(module, module).split(".")[0], extra))
    found -= {("no_such_package", "hf"), ("package", "onnx"), ("name", "parquet"), ("torchvision", "timm")}
    assert len(found) > 10, "the calls are no longer written as looked for here"
    for package, extra in found:
        brought = [re.split(r"[<>=\[]", need)[0].replace("-", "_") for need in extras[extra]]
        assert package in brought, f"{package} is not in the extra {extra}"
