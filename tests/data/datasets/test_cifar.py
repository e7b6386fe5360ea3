"""CIFAR-10 and CIFAR-100: whole, long-tailed, noisy, with the labels that people gave, and small.

CIFAR-100 comes from the public archive's files, which the tests write, and from grids, of which there is a part.
"""

import hashlib
import pickle

import numpy as np
import pytest
import torch

from icda.data import create_task
from icda.data.bias.long_tail import long_tail_counts
from icda.data.datasets import cifar, cifar_files
from icda.data.datasets.cifar import halve
from icda.data.datasets.cifar_files import DamagedDatasetError
from icda.data.registry import DatasetNotFoundError

# Names, the largest class and the ratio; test_long_tail.py holds the class sizes to the literature.
LONG_TAILED = {
    "cifar10_lt_100": (5000, 100),
    "cifar10_lt_10": (5000, 10),
    "cifar10_lt_100_meta": (4990, 100),
    "cifar10_lt_10_meta": (4990, 10),
}
WRONG = {"cifar10_uniform_40": 0.36, "cifar10_uniform_60": 0.54, "cifar10_flip_20": 0.2, "cifar10_flip_40": 0.4}


def test_cifar10_is_whole_in_its_original_order_and_normalised_by_the_figures_of_the_literature(real_data):
    task = create_task("cifar10", root=real_data)
    assert task.name == "cifar10"
    assert task.class_counts.tolist() == [5000] * 10
    assert torch.bincount(task.test.targets).tolist() == [1000] * 10
    assert task.train.targets[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert task.test.targets[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    assert (task.validation, task.metadata, task.default_model) == (None, None, "resnet32")
    first = task.train.batch(torch.tensor([0])).inputs[0, :, 0, 0]
    expected = [(59 - 125.3) / 63.0, (62 - 123.0) / 62.1, (63 - 113.9) / 66.7]  # the famous frog's corner
    assert first.tolist() == pytest.approx(expected, abs=1e-5)
    some = task.train.batch(torch.arange(0, 50_000, 10)).inputs
    assert some.mean((0, 2, 3)).tolist() == pytest.approx([0, 0, 0], abs=0.02)
    assert some.std((0, 2, 3)).tolist() == pytest.approx([1, 1, 1], abs=0.02)
    positions = torch.arange(16)
    for split, changes in ((task.train, True), (task.test, False)):  # training images alone are augmented
        plain = split.batch(positions).inputs
        random = split.batch(positions, torch.Generator().manual_seed(0)).inputs
        assert torch.equal(plain, random) is not changes


@pytest.mark.parametrize("name", LONG_TAILED)
def test_long_tailed_sets_have_the_class_sizes_of_the_literature(real_data, name):
    task = create_task(name, root=real_data)
    assert task.name == name
    largest, ratio = LONG_TAILED[name]
    assert task.class_counts.tolist() == long_tail_counts(largest, 10, ratio)
    assert torch.bincount(task.test.targets).tolist() == [1000] * 10
    if name.endswith("_meta"):
        assert torch.bincount(task.metadata.targets).tolist() == [10] * 10
        assert not set(task.metadata.rows.tolist()) & set(task.train.rows.tolist())
    else:
        assert task.metadata is None


@pytest.mark.parametrize("name", WRONG)
def test_noisy_sets_keep_a_thousand_clean_images_and_corrupt_the_rest(real_data, name):
    task, clean = create_task(name, root=real_data), create_task("cifar10", root=real_data)
    assert task.name == name
    assert (len(task.train), torch.bincount(task.metadata.targets).tolist()) == (49_000, [100] * 10)
    assert len(torch.cat([task.train.rows, task.metadata.rows]).unique()) == 50_000
    assert torch.equal(task.metadata.targets, clean.train.targets[task.metadata.rows])
    assert torch.equal(task.train.clean_targets, clean.train.targets[task.train.rows])
    wrong = (task.train.targets != task.train.clean_targets).double().mean().item()
    assert wrong == pytest.approx(WRONG[name], abs=0.01)


@pytest.mark.parametrize("name", ["cifar10_lt_100", "cifar10_flip_40", "cifar10_small", "cmnist"])
def test_a_seed_decides_what_is_taken_and_images_are_decoded_once(real_data, name):
    first, again, other = (create_task(name, real_data, seed) for seed in (0, 0, 1))
    assert first.data_hash == again.data_hash != other.data_hash
    assert name == "cmnist" or first.train.source is again.train.source


SMALL_LONG_TAILED = {
    "cifar10_lt_100_small": [500, 299, 179, 107, 64, 38, 23, 13, 8, 5],
    "cifar10_lt_10_small": [500, 387, 299, 232, 179, 139, 107, 83, 64, 50],
}
SMALL_WRONG = {
    "cifar10_flip_20_small": 0.2,
    "cifar10_flip_40_small": 0.4,
    "cifar10_uniform_40_small": 0.36,
    "cifar10_uniform_60_small": 0.54,
}


def test_halving_averages_four_pixels():
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 6, 3), dtype=np.uint8)
    small = halve(images)
    assert small.shape == (3, 2, 3, 3)
    for n, i, j, c in np.ndindex(small.shape):
        four = images[n, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, c].astype(float)
        assert small[n, i, j, c] == int(four.mean() + 0.5)


@pytest.mark.parametrize("name", ["cifar10_small", *SMALL_LONG_TAILED, *SMALL_WRONG])
def test_metadata_are_clean_balanced_and_not_trained_on(real_data, name):
    task, whole = create_task(name, real_data), create_task("cifar10", real_data)
    assert (task.name, task.validation, task.input_shape) == (name, None, (3, 16, 16))
    assert torch.bincount(task.metadata.targets).tolist() == [10] * 10
    assert torch.equal(task.metadata.targets, whole.train.targets[task.metadata.rows])
    assert not set(task.metadata.rows.tolist()) & set(task.train.rows.tolist())
    assert torch.bincount(task.test.targets).tolist() == [1000] * 10
    if name in SMALL_LONG_TAILED:
        assert task.class_counts.tolist() == SMALL_LONG_TAILED[name]
    if name in SMALL_WRONG:
        wrong = (task.train.targets != task.train.clean_targets).double().mean().item()
        assert wrong == pytest.approx(SMALL_WRONG[name], abs=0.04)


def test_the_variant_with_validation_changes_nothing_else(real_data):
    plain, tuned = (create_task(f"cifar10_lt_100_small{end}", real_data) for end in ("", "_validation"))
    assert torch.equal(plain.train.rows, tuned.train.rows)
    assert torch.equal(plain.metadata.rows, tuned.metadata.rows)
    assert torch.bincount(tuned.validation.targets).tolist() == [100] * 10
    used = set(tuned.train.rows.tolist()) | set(tuned.metadata.rows.tolist())
    assert not used & set(tuned.validation.rows.tolist())


def test_training_images_are_mirrored_and_never_shifted(real_data):
    task = create_task("cifar10_small", real_data)
    positions = torch.arange(32)
    plain = task.train.batch(positions).inputs
    random = task.train.batch(positions, torch.Generator().manual_seed(0)).inputs
    mirrored = plain.flip(3)
    same = [torch.equal(a, b) for a, b in zip(random, plain, strict=True)]
    other = [torch.equal(a, b) for a, b in zip(random, mirrored, strict=True)]
    assert all(a or b for a, b in zip(same, other, strict=True))
    assert 0 < sum(same) < 32


PER_CLASS = 110


@pytest.fixture
def root(tmp_path, monkeypatch):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name, count in (("train", 100 * PER_CLASS), ("test", 200)):
        data = generator.integers(0, 256, (count, 3072), dtype=np.uint8)
        content = {b"data": data, b"fine_labels": [k % 100 for k in range(count)], b"coarse_labels": [0] * count}
        (folder / name).write_bytes(pickle.dumps(content, protocol=4))
    names = [f"class {number}".encode() for number in range(100)]
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": names}, protocol=4))
    for sums in ("FINE_SUMS", "NAMES_SUMS"):
        own = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in getattr(cifar_files, sums)}
        monkeypatch.setattr(cifar_files, sums, own)
    return tmp_path


def test_images_labels_and_names_are_those_of_the_files(root):
    task = create_task("cifar100", root)
    assert task.class_counts.tolist() == [PER_CLASS] * 100
    assert task.class_names[3] == "class 3"
    data = pickle.loads((root / "cifar-100-python/train").read_bytes())[b"data"]
    red = (float(data[5, 33]) - 125.3) / 63.0  # row 1, column 1 of the red plane
    assert task.train.batch(torch.tensor([5])).inputs[0, 0, 1, 1].item() == pytest.approx(red, abs=1e-5)


@pytest.mark.parametrize(("name", "smallest"), [("cifar100_lt_100", 1), ("cifar100_lt_10", 11)])
def test_long_tails_fall_off_and_the_meta_variant_sets_ten_a_class_aside(root, name, smallest):
    plain, meta = create_task(name, root), create_task(f"{name}_meta", root)
    assert (int(plain.class_counts[0]), int(plain.class_counts[-1])) == (PER_CLASS, smallest)
    assert int(meta.class_counts[0]) == PER_CLASS - 10
    assert plain.metadata is None
    assert torch.bincount(meta.metadata.targets).tolist() == [10] * 100
    assert not set(meta.metadata.rows.tolist()) & set(meta.train.rows.tolist())


@pytest.mark.parametrize(("name", "wrong"), [("cifar100_flip_40", 0.4), ("cifar100_uniform_60", 0.594)])
def test_noise_spares_the_metadata(root, name, wrong):
    task, clean = create_task(name, root), create_task("cifar100", root)
    assert torch.equal(task.metadata.targets, clean.train.targets[task.metadata.rows])
    share = (task.train.targets != task.train.clean_targets).double().mean().item()
    assert share == pytest.approx(wrong, abs=0.03)


def test_a_damaged_file_is_refused(root):
    cifar._read.cache_clear()
    path = root / "cifar-100-python" / "test"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedDatasetError, match="fetch the file again"):
        create_task("cifar100", root)


@pytest.fixture
def stored(real_data):
    if not (real_data / "cifar100" / "manifest.json").is_file():
        pytest.skip(f"REAL DATA NOT TESTED: no grids of CIFAR-100 in {real_data}.")
    return real_data


@pytest.mark.parametrize(
    ("name", "largest", "ratio", "total"),
    [
        ("cifar100_lt_100", 500, 100, 10_847),
        ("cifar100_lt_10", 500, 10, 19_573),
        ("cifar100_lt_100_meta", 490, 100, 10_626),
        ("cifar100_lt_100_small", 300, 100, 6_486),
        ("cifar100_lt_10_small", 300, 10, 11_720),
    ],
)
def test_stored_long_tails_have_the_published_sizes(stored, name, largest, ratio, total):
    task = create_task(name, stored)
    assert task.class_counts.tolist() == long_tail_counts(largest, 100, ratio)
    assert len(task.train) == len(task.train.rows.unique()) == total
    assert torch.bincount(task.test.targets).tolist() == [100] * 100
    assert name.endswith("_small") or "22,433 of 50,000 training images are stored" in task.description
    if task.metadata is not None:
        assert torch.bincount(task.metadata.targets).tolist() == [10] * 100
        assert not set(task.metadata.rows.tolist()) & set(task.train.rows.tolist())


def test_what_is_stored_says_how_much_it_is_and_what_it_does_not_suffice_for(stored):
    task = create_task("cifar100", stored)
    assert (len(task.train), task.class_names[0], task.class_names[99]) == (22_433, "apple", "worm")
    assert "500 to 150 images per class. 22,433 of 50,000 training images are stored" in task.description
    for name in ("cifar100_flip_20", "cifar100_uniform_60", "cifar100_lt_10_meta"):
        with pytest.raises(
            ValueError, match=f"{name} needs more images: of CIFAR-100 only 22,433 of 50,000 .* Toronto"
        ):
            create_task(name, stored)


@pytest.mark.parametrize(
    ("name", "wrong"), [("cifar100_small", None), ("cifar100_flip_40_small", 0.4), ("cifar100_uniform_60_small", 0.594)]
)
def test_small_tasks_have_a_hundred_images_per_class(stored, name, wrong):
    task, tuned = create_task(name, stored), create_task(f"{name}_validation", stored)
    clean = task.train.targets if wrong is None else task.train.clean_targets
    assert torch.bincount(clean).tolist() == [100] * 100
    assert wrong is None or (task.train.targets != clean).double().mean().item() == pytest.approx(wrong, abs=0.02)
    assert torch.bincount(tuned.validation.targets).tolist() == [20] * 100
    parts = torch.cat([tuned.train.rows, tuned.metadata.rows, tuned.validation.rows])
    assert len(parts.unique()) == 13_000
    assert torch.equal(task.train.rows, tuned.train.rows)


HUMAN_WRONG = {"aggre": 0.0901, "random1": 0.1723, "worse": 0.4021}  # of all 50,000 images


@pytest.fixture
def labels(real_data):
    folder = real_data / "cifar_n"
    if not (folder / "cifar10n.npz").is_file():
        pytest.skip(f"REAL DATA NOT TESTED: no cifar10n.npz in {folder}.")
    return real_data


@pytest.mark.parametrize("kind", HUMAN_WRONG)
def test_all_images_of_cifar10_have_human_labels_and_their_own_as_the_clean_ones(labels, kind):
    task, plain = create_task(f"cifar10n_{kind}", labels), create_task("cifar10", labels)
    assert (len(task.train), task.name, task.input_shape) == (50_000, f"cifar10n_{kind}", (3, 32, 32))
    assert torch.equal(task.train.clean_targets, plain.train.targets)
    wrong = (task.train.targets != plain.train.targets).double().mean().item()
    assert wrong == pytest.approx(HUMAN_WRONG[kind], abs=1e-3)
    assert torch.equal(task.test.targets, plain.test.targets)
    assert f"({kind}), {100 * wrong:.1f} % of them wrong" in task.description


@pytest.mark.parametrize(
    ("name", "per_class", "classes", "wrong"),
    [(f"cifar10n_{kind}_small", 500, 10, share) for kind, share in HUMAN_WRONG.items()]
    + [("cifar100n_noisy_small", 100, 100, 0.402)],
)
def test_small_tasks_have_clean_metadata_and_balanced_images(labels, name, per_class, classes, wrong):
    task = create_task(name, labels)
    assert torch.bincount(task.train.clean_targets).tolist() == [per_class] * classes
    assert (task.train.targets != task.train.clean_targets).double().mean().item() == pytest.approx(wrong, abs=0.02)
    whole = create_task(name.partition("n_")[0], labels)
    assert torch.equal(task.train.clean_targets, whole.train.targets[task.train.rows])
    assert torch.equal(task.metadata.targets, whole.train.targets[task.metadata.rows])
    assert torch.bincount(task.metadata.targets).tolist() == [10] * classes
    assert not set(task.metadata.rows.tolist()) & set(task.train.rows.tolist())


def test_the_small_tasks_share_their_images(labels):
    tasks = [create_task(f"cifar10n_{kind}_small", labels) for kind in HUMAN_WRONG]
    assert all(torch.equal(task.train.rows, tasks[0].train.rows) for task in tasks)
    assert len({task.data_hash for task in tasks}) == 3


def test_labels_that_are_missing_or_of_another_order_are_refused(labels, tmp_path):
    (tmp_path / "cifar10").symlink_to(labels / "cifar10")
    with pytest.raises(DatasetNotFoundError, match=r"CIFAR-10N is not there.*cifar10n\.npz.*research use only"):
        create_task("cifar10n_worse_small", tmp_path)
    with np.load(labels / "cifar_n" / "cifar10n.npz") as stored:
        (tmp_path / "cifar_n").mkdir()
        np.savez(tmp_path / "cifar_n" / "cifar10n.npz", **{name: stored[name][::-1] for name in stored.files})
    with pytest.raises(ValueError, match="the images stand in another order"):
        create_task("cifar10n_worse_small", tmp_path)
