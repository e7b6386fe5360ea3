import os
from pathlib import Path

import numpy as np
import pytest

from icda_bench.studies.embeddings.sets import SETS
from icda_bench.studies.features import FeaturePart

ROOT = Path(os.environ.get("ICDA_DATA", "no-such-folder"))


def real(name, file, seed=0):
    if not (ROOT / file).exists():
        pytest.skip(f"{file} is not under ICDA_DATA")
    return SETS[name](ROOT, seed, Path("unused"))


def test_groups_are_pairs_of_class_and_attribute():
    part = FeaturePart(np.zeros((4, 2)), np.array([0, 0, 1, 1]), {"place": np.array([0, 1, 0, 1])})
    assert part.groups("place").tolist() == [0, 1, 2, 3]


def test_waterbirds_has_the_published_groups():
    data = real("waterbirds", "waterbirds_resnet50.npz")
    assert np.bincount(data.train.groups("place")).tolist() == [3498, 184, 56, 1057]
    assert np.bincount(data.test.groups("place")).tolist() == [2255, 2255, 642, 642]


def test_adult_does_not_hold_the_answer_among_its_features():
    data = real("adult", "tabular/adult.csv.zip")
    assert data.train.features.shape[1] == 104
    together = np.column_stack([data.train.features, data.train.targets])
    correlations = np.abs(np.nan_to_num(np.corrcoef(together[:5000], rowvar=False)[-1, :-1]))
    assert correlations.max() < 0.9
    assert set(data.train.attributes) == {"sex", "race"}


def test_compas_splits_do_not_overlap_and_follow_the_seed():
    data, other = real("compas", "tabular/compas.csv.gz"), real("compas", "tabular/compas.csv.gz", seed=1)
    sizes = [len(part.targets) for part in (data.train, data.validation, data.test)]
    assert sum(sizes) == 7214
    assert not np.array_equal(data.train.targets, other.train.targets)
    again = real("compas", "tabular/compas.csv.gz")
    assert np.array_equal(data.train.features, again.train.features)


def test_standardised_uses_training_figures_alone():
    data = real("compas", "tabular/compas.csv.gz").standardised()
    np.testing.assert_allclose(data.train.features.mean(0), 0, atol=1e-4)
    assert np.abs(data.test.features.mean(0)).max() > 1e-3


def test_missing_files_are_named(tmp_path):
    for name in SETS:
        with pytest.raises(FileNotFoundError, match="ICDA_DATA"):
            SETS[name](tmp_path, 0, tmp_path)
