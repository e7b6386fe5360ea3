import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from icda.data import create_task
from icda.data.datasets.digits import read_idx
from icda.data.registry import DatasetNotFoundError


def _idx(values: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes()


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files_are_read_zipped_or_plain(tmp_path: Path, zipped: bool) -> None:
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / ("values.gz" if zipped else "values")
    path.write_bytes(gzip.compress(_idx(values)) if zipped else _idx(values))
    assert np.array_equal(read_idx(path), values)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"<html>", "page is no idx file"), (_idx(np.zeros((4, 4), dtype=np.uint8))[:-5], "page is cut short")],
)
def test_a_file_that_is_no_idx_or_cut_short_is_named(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_idx(tmp_path / "page")


def test_an_incomplete_folder_names_the_missing_file(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(
        gzip.compress(_idx(np.zeros((2, 28, 28), np.uint8)))
    )
    with pytest.raises(DatasetNotFoundError, match=r"train-labels-idx1-ubyte, plain or as \.gz, is missing"):
        create_task("mnist", root=tmp_path)


def test_mnist_is_cut_without_overlap(real_data: Path) -> None:
    task = create_task("mnist", root=real_data)
    assert {name: len(split) for name, split in task.splits().items()} == {
        "train": 54_900,
        "validation": 5_000,
        "test": 10_000,
        "metadata": 100,
    }
    rows = torch.cat([split.rows for split in (task.train, task.validation, task.metadata)])
    assert len(rows.unique()) == 60_000
    assert task.test.targets[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert task.input_shape == tuple(task.test.batch(torch.tensor([0])).inputs.shape[1:])


class TestColoured:
    def test_splits_and_groups_have_the_sizes_of_lisa(self, real_data: Path) -> None:
        task = create_task("cmnist", root=real_data)
        assert task.validation is not None
        assert task.metadata is None
        expected = {
            task.train: [12_000, 3_000, 3_000, 12_000],
            task.validation: [2_500] * 4,
            task.test: [1_000, 9_000, 9_000, 1_000],
        }
        # Digits below 5 and above are not exactly as many, and chance draws the rest: a few percent either way.
        for split, sizes in expected.items():
            assert torch.bincount(split.groups).tolist() == pytest.approx(sizes, rel=0.08)

    def test_splits_are_consecutive_and_a_quarter_of_all_labels_is_wrong(self, real_data: Path) -> None:
        task = create_task("cmnist", root=real_data)
        assert torch.equal(torch.cat([split.rows for split in task.splits().values()]), torch.arange(60_000))
        for split in task.splits().values():
            assert split.clean_targets is not None
            assert (split.targets != split.clean_targets).float().mean().item() == pytest.approx(0.25, abs=0.01)

    def test_what_is_seen_is_the_digit_in_the_colour_of_its_group(self, real_data: Path) -> None:
        batch = create_task("cmnist", root=real_data).test.batch(torch.arange(200))
        assert batch.groups is not None
        assert batch.inputs.shape == (200, 3, 28, 28)
        assert torch.equal(batch.inputs[:, 2], torch.zeros(200, 28, 28))
        green = batch.inputs[:, 1].sum((1, 2)) > batch.inputs[:, 0].sum((1, 2))
        assert torch.equal(green.long(), batch.groups % 2)
        assert torch.equal(batch.groups // 2, batch.targets)
        assert batch.inputs.max().item() == pytest.approx((1 - 0.1307) / 0.3081, abs=1e-4)
