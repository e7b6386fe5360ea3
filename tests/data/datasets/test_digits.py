import gzip

import numpy as np
import pytest
import torch

from icda.data import create_task
from icda.data.datasets.digits import flip_share, flip_some, paint, read_idx
from icda.data.registry import DatasetNotFoundError

NAMES = ["digits", "digits_lt", "digits_uniform_noise", "digits_flip_noise", "digits_coloured"]


@pytest.fixture(scope="module", params=NAMES)
def task(request):
    return create_task(request.param)


def test_a_task_bears_its_name_and_fits_its_model(task):
    channels = 3 if task.name == "digits_coloured" else 1
    assert task.name in NAMES
    assert (task.default_model, task.input_kind, task.input_shape) == ("small_cnn", "image", (channels, 8, 8))
    assert task.train.batch(torch.arange(2)).inputs.shape == (2, channels, 8, 8)
    assert task.description


def test_no_image_is_in_two_splits(task):
    rows = torch.cat([split.rows for split in task.splits().values()])
    assert set(task.splits()) == {"train", "validation", "test", "metadata"}
    assert len(rows.unique()) == len(rows)


def test_test_validation_and_metadata_hold_fifty_ten_and_ten_of_each_digit(task):
    digits = create_task("digits")
    assert {name: len(split) for name, split in task.splits().items() if name != "train"} == {
        "validation": 100,
        "test": 500,
        "metadata": 100,
    }
    for name in ("validation", "test", "metadata"):
        assert torch.equal(task.splits()[name].rows, digits.splits()[name].rows)
        assert torch.bincount(digits.splits()[name].targets).unique().numel() == 1


def test_a_seed_decides_the_data(task):
    assert create_task(task.name).data_hash == task.data_hash
    assert create_task(task.name, data_seed=1).data_hash != task.data_hash


def test_inputs_are_standardised(task):
    inputs = task.train.batch(torch.arange(len(task.train))).inputs
    visible = inputs[:, :2] if task.name == "digits_coloured" else inputs
    assert visible.mean().item() == pytest.approx(0, abs=0.05)
    assert visible.std().item() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("name", "wrong"), [("digits_uniform_noise", 0.36), ("digits_flip_noise", 0.4)])
def test_only_training_labels_are_wrong_and_as_many_as_announced(name, wrong):
    task, clean = create_task(name), create_task("digits")
    assert torch.equal(task.train.clean_targets, clean.train.targets)
    share = (task.train.targets != clean.train.targets).double().mean().item()
    assert share == pytest.approx(wrong, abs=0.05)
    for part in ("validation", "test", "metadata"):
        assert torch.equal(task.splits()[part].targets, clean.splits()[part].targets)


class TestColoured:
    def test_colour_agrees_with_the_class_on_95_percent_of_train_and_on_half_elsewhere_and_is_what_is_seen(self):
        task = create_task("digits_coloured")
        assert task.group_names == ("digit<5, red", "digit<5, green", "digit>=5, red", "digit>=5, green")
        for name, split in task.splits().items():
            sizes = torch.bincount(split.groups, minlength=4)
            if name == "train":
                assert (sizes[[0, 3]].sum() / sizes.sum()).item() == pytest.approx(0.95, abs=0.002)
            else:
                assert sizes.unique().numel() == 1
            batch = split.batch(torch.arange(len(split)))
            assert torch.equal(batch.groups // 2, batch.targets)
            green = batch.inputs[:, 1].sum((1, 2)) > batch.inputs[:, 0].sum((1, 2))
            assert torch.equal(batch.groups % 2, green.long())
        assert torch.equal(task.train.targets, (create_task("digits").train.targets >= 5).long())

    def test_a_fifth_of_each_classs_labels_may_be_wrong_as_well(self):
        task, clean = create_task("digits_coloured_noise"), create_task("digits_coloured")
        assert torch.equal(task.train.clean_targets, clean.train.targets)
        wrong = task.train.targets != clean.train.targets
        for k in range(2):
            assert wrong[clean.train.targets == k].double().mean().item() == pytest.approx(0.2, abs=0.002)
        assert torch.equal(task.train.groups, clean.train.groups)  # of the true labels
        for part in ("validation", "test", "metadata"):
            assert torch.equal(task.splits()[part].targets, clean.splits()[part].targets)


def _generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_values_flip_as_often_as_asked_and_by_their_seed():
    values = torch.arange(100_000) % 2
    flipped = flip_some(values, 0.2, _generator())
    assert (flipped != values).float().mean().item() == pytest.approx(0.2, abs=0.005)
    assert set(flipped.tolist()) == {0, 1}
    uneven = torch.tensor([0] * 40 + [1] * 60)
    exact = flip_share(uneven, 0.05, _generator())
    assert [(exact != uneven)[uneven == value].sum().item() for value in (0, 1)] == [2, 3]
    for flip in (flip_some, flip_share):
        first, again, other = (flip(uneven, 0.5, _generator(seed)) for seed in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


def test_intensity_goes_into_one_channel_alone():
    images = torch.randint(1, 256, (10, 4, 5), dtype=torch.uint8, generator=_generator())
    colours = torch.arange(10) % 2
    painted = paint(images, colours)
    assert painted.dtype == torch.uint8
    for image, colour, result in zip(images, colours.tolist(), painted, strict=True):
        assert torch.equal(result[..., colour], image)
        assert result.sum() == image.sum()


def _idx(values):
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes()


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files_are_read_zipped_or_plain(tmp_path, zipped):
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / ("values.gz" if zipped else "values")
    path.write_bytes(gzip.compress(_idx(values)) if zipped else _idx(values))
    assert np.array_equal(read_idx(path), values)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"<html>", "page is no idx file"), (_idx(np.zeros((4, 4), dtype=np.uint8))[:-5], "page is cut short")],
)
def test_a_file_that_is_no_idx_or_cut_short_is_named(content, message, tmp_path):
    (tmp_path / "page").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_idx(tmp_path / "page")


def test_an_incomplete_folder_names_the_missing_file(tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "train-images-idx3-ubyte.gz").write_bytes(
        gzip.compress(_idx(np.zeros((2, 28, 28), np.uint8)))
    )
    with pytest.raises(DatasetNotFoundError, match=r"train-labels-idx1-ubyte, plain or as \.gz, is missing"):
        create_task("mnist", root=tmp_path)


def test_mnist_is_cut_without_overlap(real_data):
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


class TestColouredMnist:
    def test_splits_and_groups_have_the_sizes_of_lisa_and_a_quarter_of_all_labels_is_wrong(self, real_data):
        task = create_task("cmnist", root=real_data)
        assert task.metadata is None
        expected = {
            task.train: [12_000, 3_000, 3_000, 12_000],
            task.validation: [2_500] * 4,
            task.test: [1_000, 9_000, 9_000, 1_000],
        }
        # Digits below 5 and above are not exactly as many, and chance draws the rest: a few percent either way.
        for split, sizes in expected.items():
            assert torch.bincount(split.groups).tolist() == pytest.approx(sizes, rel=0.08)
        assert torch.equal(torch.cat([split.rows for split in task.splits().values()]), torch.arange(60_000))
        for split in task.splits().values():
            assert (split.targets != split.clean_targets).float().mean().item() == pytest.approx(0.25, abs=0.01)

    def test_what_is_seen_is_the_digit_in_the_colour_of_its_group(self, real_data):
        batch = create_task("cmnist", root=real_data).test.batch(torch.arange(200))
        assert batch.inputs.shape == (200, 3, 28, 28)
        assert torch.equal(batch.inputs[:, 2], torch.zeros(200, 28, 28))
        green = batch.inputs[:, 1].sum((1, 2)) > batch.inputs[:, 0].sum((1, 2))
        assert torch.equal(green.long(), batch.groups % 2)
        assert torch.equal(batch.groups // 2, batch.targets)
        assert batch.inputs.max().item() == pytest.approx((1 - 0.1307) / 0.3081, abs=1e-4)
