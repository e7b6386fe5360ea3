import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from icda.data.datasets.cifar_files import BATCH_SUMS, DamagedDatasetError, load_arrays, read_batches, read_grids
from icda.data.registry import DatasetNotFoundError


class _Evil:
    def __reduce__(self):
        return (print, ("this ran",))


def _write_batches(folder, each=4):
    """Six batch files in the public layout; returns their images as (N, 32, 32, 3)."""
    folder.mkdir()
    images = np.random.default_rng(0).integers(0, 256, (6 * each, 32, 32, 3), dtype=np.uint8)
    for k, name in enumerate(BATCH_SUMS):
        part = images[k * each : (k + 1) * each]
        rows = np.ascontiguousarray(part.transpose(0, 3, 1, 2)).reshape(each, -1)
        content = {b"batch_label": name.encode(), b"data": rows, b"labels": [k] * each, b"filenames": [b"x"] * each}
        (folder / name).write_bytes(pickle.dumps(content, protocol=4))
    return images


def test_the_public_batches_are_read_in_order(tmp_path):
    images = _write_batches(tmp_path / "batches")
    found = read_batches(tmp_path / "batches", dict.fromkeys(BATCH_SUMS))
    assert np.array_equal(found.train_images, images[:20])
    assert np.array_equal(found.test_images, images[20:])
    assert found.train_labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4
    assert found.test_labels.tolist() == [5] * 4
    assert found.train_images.flags.c_contiguous


def test_batches_with_another_check_sum_or_a_missing_one_are_refused(tmp_path):
    _write_batches(tmp_path / "batches")
    with pytest.raises(DamagedDatasetError, match=r"data_batch_1 has check sum .*, expected c99cafc1"):
        read_batches(tmp_path / "batches")
    (tmp_path / "batches" / "data_batch_3").unlink()
    with pytest.raises(DatasetNotFoundError, match="data_batch_3 is missing"):
        read_batches(tmp_path / "batches", dict.fromkeys(BATCH_SUMS))


def test_a_pickle_that_would_run_code_is_refused_before_it_runs(tmp_path, capsys):
    with pytest.raises(pickle.UnpicklingError, match=r"evil asks to load builtins\.print"):
        load_arrays(pickle.dumps({b"data": _Evil()}), tmp_path / "evil")
    assert capsys.readouterr().out == ""


def test_arrays_pickled_by_python_2_are_admitted(tmp_path):
    # What Python 2 wrote: a protocol 2 pickle of str objects and of an array from the module's old home.
    content = (
        b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x03\x85cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89U\x03\x01\x02\x03tbs."
    )
    loaded = load_arrays(content, tmp_path / "old")
    assert list(loaded) == [b"data"]
    assert loaded[b"data"].tolist() == [1, 2, 3]


def test_grids_are_checked_against_their_manifest(real_data, tmp_path):
    folder = tmp_path / "cifar10"
    shutil.copytree(real_data / "cifar10", folder, copy_function=lambda source, target: Path(target).symlink_to(source))
    folder.chmod(0o755)
    damaged = folder / "test_03.webp"
    content = bytearray(damaged.read_bytes())
    content[1000] ^= 1
    damaged.unlink()
    damaged.write_bytes(content)
    with pytest.raises(DamagedDatasetError, match=r"test_03\.webp has check sum"):
        read_grids(folder)
    damaged.unlink()
    with pytest.raises(DatasetNotFoundError, match=r"test_03\.webp is missing"):
        read_grids(folder)
