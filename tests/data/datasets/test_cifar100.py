"""CIFAR-100 from the public archive's files, which the tests write, and from grids, of which there is a part."""

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from icda.data import create_task
from icda.data.bias.long_tail import long_tail_counts
from icda.data.datasets import cifar, cifar_files
from icda.data.datasets.cifar_files import DamagedDatasetError
from icda.data.given_labels import relabelled

PER_CLASS = 110


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_images_labels_and_names_are_those_of_the_files(root: Path) -> None:
    task = create_task("cifar100", root)
    assert task.class_counts.tolist() == [PER_CLASS] * 100
    assert task.class_names[3] == "class 3"
    data = pickle.loads((root / "cifar-100-python/train").read_bytes())[b"data"]
    red = (float(data[5, 33]) - 125.3) / 63.0  # row 1, column 1 of the red plane
    assert task.train.batch(torch.tensor([5])).inputs[0, 0, 1, 1].item() == pytest.approx(red, abs=1e-5)


@pytest.mark.parametrize(("name", "smallest"), [("cifar100_lt_100", 1), ("cifar100_lt_10", 11)])
def test_long_tails_fall_off_and_the_meta_variant_sets_ten_a_class_aside(root: Path, name: str, smallest: int) -> None:
    plain, meta = create_task(name, root), create_task(f"{name}_meta", root)
    assert (int(plain.class_counts[0]), int(plain.class_counts[-1])) == (PER_CLASS, smallest)
    assert int(meta.class_counts[0]) == PER_CLASS - 10
    assert plain.metadata is None
    assert torch.bincount(meta.metadata.targets).tolist() == [10] * 100
    assert not set(meta.metadata.rows.tolist()) & set(meta.train.rows.tolist())


@pytest.mark.parametrize(("name", "wrong"), [("cifar100_flip_40", 0.4), ("cifar100_uniform_60", 0.594)])
def test_noise_spares_the_metadata(root: Path, name: str, wrong: float) -> None:
    task, clean = create_task(name, root), create_task("cifar100", root)
    assert task.train.clean_targets is not None
    assert torch.equal(task.metadata.targets, clean.train.targets[task.metadata.rows])
    share = (task.train.targets != task.train.clean_targets).double().mean().item()
    assert share == pytest.approx(wrong, abs=0.03)


def test_a_damaged_file_is_refused(root: Path) -> None:
    cifar._read.cache_clear()
    path = root / "cifar-100-python" / "test"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DamagedDatasetError, match="fetch the file again"):
        create_task("cifar100", root)


@pytest.fixture
def stored(real_data: Path) -> Path:
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
def test_stored_long_tails_have_the_published_sizes(
    stored: Path, name: str, largest: int, ratio: int, total: int
) -> None:
    task = create_task(name, stored)
    assert task.class_counts.tolist() == long_tail_counts(largest, 100, ratio)
    assert len(task.train) == len(task.train.rows.unique()) == total
    assert torch.bincount(task.test.targets).tolist() == [100] * 100
    assert name.endswith("_small") or "22,433 of 50,000 training images are stored" in task.description
    if task.metadata is not None:
        assert torch.bincount(task.metadata.targets).tolist() == [10] * 100
        assert not set(task.metadata.rows.tolist()) & set(task.train.rows.tolist())


def test_what_is_stored_says_how_much_it_is_and_what_it_does_not_suffice_for(stored: Path) -> None:
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
def test_small_tasks_have_a_hundred_images_per_class(stored: Path, name: str, wrong: float | None) -> None:
    task, tuned = create_task(name, stored), create_task(f"{name}_validation", stored)
    clean = task.train.targets if wrong is None else task.train.clean_targets
    assert torch.bincount(clean).tolist() == [100] * 100
    assert wrong is None or (task.train.targets != clean).double().mean().item() == pytest.approx(wrong, abs=0.02)
    assert torch.bincount(tuned.validation.targets).tolist() == [20] * 100
    parts = torch.cat([tuned.train.rows, tuned.metadata.rows, tuned.validation.rows])
    assert len(parts.unique()) == 13_000
    assert torch.equal(task.train.rows, tuned.train.rows)


@pytest.mark.parametrize("name", ["cifar100", "cifar100_lt_10", "cifar100_small"])
def test_labels_in_the_published_order_find_their_images(stored: Path, name: str) -> None:
    task = create_task(name, stored)
    again = relabelled(task, f"{stored / 'cifar_n' / 'cifar100n.npz'}:clean_label")
    assert torch.equal(again.train.targets, task.train.targets)
