from pathlib import Path

import pytest

from icda.data import TASKS, create_task
from icda.data.registry import data_root
from icda.registry import UnknownNameError


def test_a_task_bears_its_name_and_a_misspelt_one_gets_a_proposal():
    assert create_task("Digits-LT").name == "digits_lt"
    with pytest.raises(UnknownNameError, match="did you mean 'cifar10_lt_100'"):
        create_task("cifar10-lt100")


def test_the_page_about_datasets_names_every_task():
    page = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text()
    missing = [name for name in TASKS if f"`{name.removesuffix('_validation')}`" not in page]
    assert not missing, f"docs/datasets.md wants a row for {', '.join(missing)}"


def test_a_given_root_goes_before_the_variable_and_the_variable_before_the_default(monkeypatch):
    monkeypatch.setenv("ICDA_DATA", "from_variable")
    assert data_root("given") == Path("given")
    assert data_root() == Path("from_variable")
    monkeypatch.delenv("ICDA_DATA")
    assert data_root() == Path("data")
