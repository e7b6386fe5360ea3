from __future__ import annotations

import sys
from pathlib import Path

import pytest

from icda.registry import Registry, UnknownNameError, did_you_mean, nearest


def test_hyphens_case_and_aliases_lead_to_the_same_entry() -> None:
    registry: Registry[int] = Registry("number")
    registry.register("twenty_one", "xxi")(21)
    assert registry.get("Twenty-One") == registry.get("XXI") == 21
    assert list(registry) == ["twenty_one"]


def test_a_typo_is_answered_with_the_nearest_name() -> None:
    registry: Registry[int] = Registry("number")
    registry.register("seven")(7)
    with pytest.raises(UnknownNameError, match="unknown number 'sevn': did you mean 'seven'"):
        registry.get("sevn")


def test_nothing_near_means_no_guess() -> None:
    assert nearest("zzzz", ["icda", "isda"]) is None


def test_swapped_letters_find_the_word_they_make_up() -> None:
    assert nearest("idca", ["isda", "icda", "risda"]) == "icda"


def test_registering_a_name_twice_is_refused() -> None:
    registry: Registry[object] = Registry("thing")
    registry.register("one")(object())
    with pytest.raises(ValueError, match="registered twice"):
        registry.register("one")(object())


def test_a_module_that_fails_to_import_fails_every_look_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "half_broken"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "broken.py").write_text("raise RuntimeError('cannot be imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry: Registry[int] = Registry("thing", "half_broken")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cannot be imported"):
            registry.get("anything")
    sys.modules.pop("half_broken", None)


def test_every_registered_loss_file_carries_its_registry_name() -> None:
    from icda.losses import LOSSES

    for name in LOSSES:
        assert LOSSES.get(name).__module__ == f"icda.losses.{name}"


def test_a_hint_is_a_question_or_nothing_and_says_what_to_type() -> None:
    assert did_you_mean("timn", ["hf", "timm"]) == "did you mean 'timm'? "
    assert did_you_mean("timn", ["hf", "timm"], lambda name: f"{name}:resnet18") == "did you mean 'timm:resnet18'? "
    assert did_you_mean("zzzz", ["hf", "timm"]) == ""
