"""Files that would take memory without measure: refused by their directory, footer or header, before they are unpacked."""

import json
import tracemalloc
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icda.data.embedding.features import read_arrays
from icda.data.embedding.samples import Columns, Reads
from icda.data.own.blocks import find_blocks
from icda.data.own.feature_files import read_features
from icda.errors import IcdaError, InputError
from icda.limits import LARGEST_JSON, LARGEST_SIDE, UNPACKED_FREE, check_unpacked
from icda.models.encoders import create_encoder
from icda.results.files import read_json
from icda.serving.head import HeadModel
from icda.serving.predictions import read_new
from icda.training.checkpoint import load_checkpoint

ROWS = 2**27 + 2**24  # of float64: more than UNPACKED_FREE


def pack(path, shape, stored):
    """An .npz whose array says it has a shape, with so many zero bytes behind it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("X.npy", "w", force_zip64=True) as entry:
            header = {"descr": "<f8", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(entry, header)
            for _ in range(stored // 2**24):
                entry.write(bytes(2**24))
        with archive.open("y.npy", "w") as entry:
            np.save(entry, np.zeros(3))
    return path


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    return pack(tmp_path_factory.mktemp("bomb") / "bomb.npz", (ROWS, 1), 8 * ROWS)


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    """A few kilobytes on the disk: the same value again and again, in one row group."""
    path = tmp_path_factory.mktemp("parquet") / "bomb.parquet"
    part = pa.chunked_array([pa.array(np.zeros(2**20))] * 8)
    columns = {f"f{k}": part for k in range(20)}
    pq.write_table(
        pa.table({**columns, "label": pa.chunked_array([pa.array(np.arange(2**20) % 2)] * 8)}),
        path,
        row_group_size=2**23,
    )
    assert path.stat().st_size < 2**21
    return path


def peak(work):
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"GiB of memory"):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_archive_is_measured_by_its_directory(bomb):
    assert bomb.stat().st_size < 2**21
    assert peak(lambda: read_arrays(bomb)) < 2**24
    assert read_arrays(bomb, ["y"])["y"].shape == (3,)  # what is not asked for is not counted


def test_an_array_that_says_to_be_larger_than_it_is_is_refused(tmp_path):
    path = pack(tmp_path / "lies.npz", (10**12, 8), 2**24)
    with pytest.raises(InputError, match=r"X\.npy is cut off"):
        read_arrays(path)


def test_parquet_is_measured_by_its_footer(parquet):
    assert peak(lambda: read_features(parquet, Columns(labels="label"))) < 2**24
    model = HeadModel(np.array([0, 1]), np.zeros((2, 20)), np.zeros(2), Reads("features", 20, columns=named()))
    assert peak(lambda: read_new(parquet, model.reads)) < 2**24
    block = find_blocks(parquet, Columns(labels="label", features="f"))[0]
    assert peak(block.read) < 2**24


def named():
    return tuple(f"f{k}" for k in range(20))


def test_a_checkpoint_is_measured_by_its_directory(tmp_path):
    path = tmp_path / "model.pt"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("data", "w", force_zip64=True) as entry,
    ):
        for _ in range(UNPACKED_FREE // 2**24 + 8):
            entry.write(bytes(2**24))
    with pytest.raises(IcdaError, match=r"GiB of memory"):
        load_checkpoint(path)


def test_what_is_stored_as_it_is_may_be_of_any_size(tmp_path):
    path = tmp_path / "plain"
    with path.open("wb") as file:
        file.truncate(2**36)
    check_unpacked(path, 2**36)


def test_images_of_a_stranger_s_size_are_refused(tmp_path):
    known = {"kind": "image", "width": 1280, "encoder": "efficientnet_lite0", "image_size": 20000}
    with pytest.raises(InputError, match=rf"image size is 20000, expected 1 to {LARGEST_SIDE}"):
        Reads.from_dict(known, "model.json")
    with pytest.raises(InputError, match=r"image size is 20000"):
        create_encoder(None, "image", 20000)


def test_a_description_of_a_run_has_a_largest_size(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"figures": 1}))
    assert read_json(path) == {"figures": 1}
    with path.open("ab") as file:
        file.truncate(LARGEST_JSON + 1)
    with pytest.raises(InputError, match=r"more than such a file has"):
        read_json(path)
