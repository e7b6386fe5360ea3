from __future__ import annotations

import subprocess
import sys

import pytest

import icda


@pytest.mark.parametrize("name", icda.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(icda, name) is not None
    assert name in dir(icda)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'ICDALos'"):
        _ = icda.ICDALos


def test_importing_icda_does_not_load_torch() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import sys, icda; print('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert ran.stdout.strip() == "False", ran.stderr
