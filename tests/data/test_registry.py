from pathlib import Path

import pytest

from icda.data import TASKS, create_task
from icda.data.registry import DatasetNotFoundError
from icda.registry import UnknownNameError

NAMES = {
    *("digits", "digits_lt", "digits_uniform_noise", "digits_flip_noise", "digits_coloured", "mnist", "cmnist"),
    *("cifar10", "cifar10_lt_100", "cifar10_lt_10", "cifar10_lt_100_meta", "cifar10_lt_10_meta"),
    *("celeba", "celeba_64px", "waterbirds", "waterbirds_64px", "waterbirds_images", "civil_comments"),
    *("cifar10_uniform_40", "cifar10_uniform_60", "cifar10_flip_20", "cifar10_flip_40"),
}


def test_all_tasks_are_known_by_name() -> None:
    assert set(TASKS) >= NAMES


def test_a_task_bears_the_name_it_was_asked_for() -> None:
    assert create_task("Digits-LT").name == "digits_lt"


def test_a_misspelt_task_gets_a_proposal() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'cifar10_lt_100'"):
        create_task("cifar10-lt100")


@pytest.mark.parametrize("name", ["mnist", "cmnist", "cifar10", "cifar10_lt_100", "cifar10_flip_20"])
def test_a_dataset_that_is_not_there_tells_where_it_was_looked_for(name: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError) as caught:
        create_task(name, root=tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert "train-images-idx3-ubyte" in message or "cifar-10-batches-py" in message
    assert "LeCun" in message or "Toronto" in message


def test_the_page_about_datasets_names_every_task() -> None:
    page = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text()
    missing = [name for name in TASKS if f"`{name.removesuffix('_validation')}`" not in page]
    assert not missing, f"docs/datasets.md wants a row for {', '.join(missing)}"
