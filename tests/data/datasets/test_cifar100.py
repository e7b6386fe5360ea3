"""CIFAR-100 is read from the public archive's files; none of them is here, so the tests write some of that form."""

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from icda.data import create_task
from icda.data.datasets import cifar, cifar_files
from icda.data.datasets.cifar_files import DamagedDatasetError

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


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("cifar100_flip_20", 0.2),
        ("cifar100_flip_40", 0.4),
        ("cifar100_uniform_40", 0.396),
        ("cifar100_uniform_60", 0.594),
    ],
)
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
