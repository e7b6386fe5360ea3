from pathlib import Path

import pytest

from icda.extras import MissingExtraError, require


def test_a_package_with_a_missing_part_shows_its_own_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lame_package.py").write_text("import not_installed_part")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="not_installed_part") as caught:
        require("lame_package", "hf", "anything")
    assert not isinstance(caught.value, MissingExtraError)
