import sys

import pytest

from icda.registry import Registry, UnknownNameError, did_you_mean, nearest


def test_hyphens_case_and_aliases_lead_to_the_same_entry():
    registry: Registry[int] = Registry("number")
    registry.register("twenty_one", "xxi")(21)
    assert registry.get("Twenty-One") == registry.get("XXI") == 21
    assert list(registry) == ["twenty_one"]
    with pytest.raises(UnknownNameError, match="unknown number 'twenty_on': did you mean 'twenty_one'"):
        registry.get("twenty_on")
    with pytest.raises(ValueError, match="registered twice"):
        registry.register("xxi")(22)


def test_a_module_that_fails_to_import_fails_every_look_up(tmp_path, monkeypatch):
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


def test_every_registered_loss_file_carries_its_registry_name():
    from icda.losses import LOSSES

    for name in LOSSES:
        assert LOSSES.get(name).__module__ == f"icda.losses.{name}"


def test_a_hint_is_a_question_or_nothing_and_says_what_to_type():
    assert did_you_mean("timn", ["hf", "timm"]) == "did you mean 'timm'? "
    assert did_you_mean("timn", ["hf", "timm"], lambda name: f"{name}:resnet18") == "did you mean 'timm:resnet18'? "
    assert did_you_mean("zzzz", ["hf", "timm"]) == ""
    assert nearest("idca", ["isda", "icda", "risda"]) == "icda", "swapped letters"
