"""Old module names give the modules at their new places, with a warning, for one version."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from icda._moved import MOVED


@pytest.mark.parametrize(("old", "new"), sorted(MOVED.items()))
def test_an_old_name_gives_the_module_at_its_new_place(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match="is now"):
        module = importlib.import_module(old)
    assert module is importlib.import_module(new)
    assert hasattr(module, "__path__") == Path(module.__file__ or "").name.startswith("__init__")
    assert module.__spec__ is not None
    assert module.__spec__.name == new


def test_a_class_pickled_under_its_old_name_is_read_back() -> None:
    import icda

    pickled = pickle.dumps(icda.ICDAClassifier, protocol=0).replace(
        b"icda.estimators.classifier", b"icda.integrations.classifier"
    )
    sys.modules.pop("icda.integrations.classifier", None)
    with pytest.warns(DeprecationWarning, match="is now"):
        assert pickle.loads(pickled) is icda.ICDAClassifier


def test_icda_audit_stays_a_function_whatever_was_imported() -> None:
    code = "import icda.auditing, icda.cli.audit, icda; assert callable(icda.audit)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_the_module_of_terms_had_is_found_in_the_package_of_terms() -> None:
    from icda.losses import terms
    from icda.losses.terms import augmentation

    for name in ("mean_term", "off_target", "variance_term"):
        with pytest.warns(DeprecationWarning, match="is now"):
            assert getattr(terms, name) is getattr(augmentation, name)
    with pytest.raises(AttributeError, match="no_such_term"):
        terms.no_such_term  # noqa: B018
