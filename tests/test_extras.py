from __future__ import annotations

from pathlib import Path

import pytest

from icda.extras import MissingExtraError, require


def test_an_installed_package_is_returned() -> None:
    assert require("json", "hf", "nothing").loads("1") == 1


def test_a_missing_package_names_its_extra() -> None:
    with pytest.raises(
        MissingExtraError, match=r'vision models need the package \'no_such\': pip install "icda\[timm\]"'
    ):
        require("no_such", "timm", "vision models")


def test_a_package_with_a_missing_part_shows_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lame_package.py").write_text("import not_installed_part")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="not_installed_part") as caught:
        require("lame_package", "hf", "anything")
    assert not isinstance(caught.value, MissingExtraError)
