import mmap
import subprocess
import sys

import numpy as np
import pytest
import torch

import icda.heads.rows as rows_module
from icda.heads.rows import StoredRows, is_large_on_disk, mapping_of, row_chunks, times, transposed_times


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(rows_module, "CHUNK_BYTES", 7 * 5 * 8)


def on_disk(folder, array, mode="r"):
    np.save(folder / "rows.npy", array)
    return np.load(folder / "rows.npy", mmap_mode=mode)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [("f2", torch.float32), ("f4", torch.float32), ("f8", torch.float64), ("i2", torch.float32), ("u1", torch.float32)],
)
def test_chunks_are_the_rows_whatever_their_type_and_order(dtype, wanted, order, tmp_path, small_chunks):
    array = np.asarray(np.random.default_rng(0).integers(0, 100, (50, 5)), dtype=dtype, order=order)
    rows = StoredRows(on_disk(tmp_path, array))
    assert (rows.shape, rows.dtype) == ((50, 5), wanted)
    blocks = [(span, block.clone()) for span, block in rows.chunks()]
    assert len(blocks) > 1
    assert [span.start for span, _ in blocks][1:] == [span.stop for span, _ in blocks][:-1]
    np.testing.assert_array_equal(torch.cat([block for _, block in blocks]).numpy(), array)


def test_products_equal_those_in_memory(tmp_path, small_chunks):
    array = np.random.default_rng(0).normal(size=(50, 5))
    rows, whole = StoredRows(on_disk(tmp_path, array)), torch.from_numpy(array)
    weight, gradient = torch.randn(3, 5, dtype=torch.float64), torch.randn(50, 3, dtype=torch.float64)
    for features in (rows, whole):
        torch.testing.assert_close(times(features, weight), whole @ weight.T, rtol=0, atol=1e-13)
        torch.testing.assert_close(transposed_times(features, gradient), gradient.T @ whole, rtol=0, atol=1e-13)


def test_rows_can_be_selected_again_and_again(tmp_path, small_chunks):
    array = np.random.default_rng(0).normal(size=(60, 5))
    mask = np.random.default_rng(1).random(60) < 0.4
    rows = StoredRows(on_disk(tmp_path, array))[mask]
    picked = rows[torch.arange(0, len(rows), 3)]
    found = torch.cat([block.clone() for _, block in picked.chunks()])
    np.testing.assert_array_equal(found.numpy(), array[mask][::3])
    everything = torch.cat([block.clone() for _, block in rows.chunks()])
    np.testing.assert_array_equal(everything.numpy(), array[mask])


def test_chunks_in_memory_are_views():
    features = torch.randn(10, 3)
    ((span, block),) = row_chunks(features)
    assert (span, block.data_ptr()) == (slice(0, 10), features.data_ptr())


@pytest.mark.parametrize("rows", [[3, 2], [0, 0], [-1], [50], np.ones(4, dtype=bool), [[0, 1]]])
def test_a_selection_that_cannot_be_read_in_one_pass_is_an_error(rows):
    with pytest.raises((IndexError, ValueError), match=r"ascending numbers|must have that many"):
        StoredRows(np.zeros((50, 2)))[rows]


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros((2, 2), dtype=object), np.zeros((2, 2), dtype=complex)])
def test_arrays_that_are_no_rows_of_numbers_are_an_error(array):
    with pytest.raises(ValueError, match="expects a \\(N, A\\) array of real numbers"):
        StoredRows(array)


def test_only_large_mapped_arrays_count_as_large(tmp_path, monkeypatch):
    mapped = on_disk(tmp_path, np.zeros((100, 4), dtype=np.float16))
    assert not is_large_on_disk(mapped)
    monkeypatch.setattr(rows_module, "IN_MEMORY_BYTES", 100 * 4 * 4)
    assert is_large_on_disk(mapped)
    assert is_large_on_disk(np.asarray(mapped))
    assert is_large_on_disk(np.asarray(mapped)[:, :4].T)
    assert not is_large_on_disk(mapped[:99])
    assert not is_large_on_disk(np.array(mapped))
    assert not is_large_on_disk([[1.0]])


def test_writes_to_a_private_map_are_never_thrown_away(tmp_path):
    mapped = on_disk(tmp_path, np.zeros((100, 4)), mode="c")
    mapped[:] = 1
    assert mapping_of(mapped) is None
    rows = StoredRows(mapped)
    for _ in range(2):
        assert all(bool((block == 1).all()) for _, block in rows.chunks())


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED") or sys.platform != "linux", reason="Linux counts pages")
def test_a_pass_over_a_file_does_not_hold_its_pages(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((400_000, 128), dtype=np.float32))  # 195 MiB
    script = f"""
import resource, numpy as np, torch
from icda.heads.rows import StoredRows, times
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = StoredRows(np.load({str(tmp_path / "rows.npy")!r}, mmap_mode="r"))
assert times(rows, torch.ones(1, 128)).sum() == 400_000 * 128
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    grown = float(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout)
    assert grown < 60, f"{grown} MiB more than before, of a file of 195 MiB"
