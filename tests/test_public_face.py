import subprocess
import sys

import pytest

import icda


@pytest.mark.parametrize("name", icda.__all__)
def test_every_public_name_is_there(name):
    assert getattr(icda, name) is not None
    assert name in dir(icda)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'ICDALos'"):
        _ = icda.ICDALos


def test_importing_icda_does_not_load_torch():
    ran = subprocess.run(
        [sys.executable, "-c", "import sys, icda; print('torch' in sys.modules)"], capture_output=True, text=True
    )
    assert ran.stdout.strip() == "False", ran.stderr


def test_training_loads_none_of_the_large_libraries_that_only_some_runs_need():
    """They took more than half of a command's time to start."""
    large = ("torchmetrics", "transformers", "matplotlib", "scipy", "sklearn", "lightning", "ray")
    code = f"import sys, icda.training; print(sorted(set({large}) & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stdout + ran.stderr


def test_icda_audit_stays_a_function_whatever_was_imported():
    code = "import icda.auditing, icda.cli.audit, icda; assert callable(icda.audit)"
    subprocess.run([sys.executable, "-c", code], check=True)
