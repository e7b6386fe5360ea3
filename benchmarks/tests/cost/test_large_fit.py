import numpy as np
import pytest

from icda_bench.cost.large_fit import make_biased_files, measure_large_fit


def test_a_fit_in_a_child_reports_its_memory(tmp_path):
    (row,) = measure_large_fit(tmp_path, 3000, 16, 3, ("la",))
    assert (row["loss"], row["samples"], row["features"], row["classes"]) == ("la", 3000, 16, 3)
    assert row["peak_mib"] >= row["imports_mib"] > 10
    assert row["accuracy"] > 0.5


def test_files_are_made_once_and_the_same_each_time(tmp_path):
    paths = make_biased_files(tmp_path, 5000, 8, 2, np.float16)
    features, labels = np.load(paths[0]), np.load(paths[1])
    assert (features.shape, features.dtype, labels.shape) == ((5000, 8), np.float16, (5000,))
    before = paths[0].stat().st_mtime_ns
    assert make_biased_files(tmp_path, 5000, 8, 2) == paths
    assert paths[0].stat().st_mtime_ns == before
    make_biased_files(tmp_path / "again", 5000, 8, 2, np.float16)
    np.testing.assert_array_equal(np.load(tmp_path / "again/features.npy"), features)


def test_files_of_another_size_are_not_taken_for_these(tmp_path):
    make_biased_files(tmp_path, 100, 8, 2)
    with pytest.raises(ValueError, match="name another folder"):
        make_biased_files(tmp_path, 200, 8, 2)
