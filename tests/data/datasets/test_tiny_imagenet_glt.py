from pathlib import Path

import numpy as np
import pytest
import torch

from icda.data import create_task
from icda.data.bias.generalised_tail import shares
from icda.data.datasets.tiny_imagenet import FILE
from icda.data.task import Split, Task


@pytest.fixture(scope="module")
def root(real_data: Path) -> Path:
    if not (real_data / FILE).is_file():
        pytest.skip(f"REAL DATA NOT TESTED: {FILE} is not there.")
    return real_data


def table(split: Split) -> np.ndarray:
    """Samples by class and attribute (100, 3)."""
    counts = np.zeros((100, 3), dtype=int)
    for label, group in zip(split.targets.tolist(), split.groups.tolist(), strict=True):
        counts[label, group] += 1
    return counts


def build(protocol: str, root: Path, seed: int = 0) -> Task:
    return create_task(f"tiny_imagenet_{protocol}", root, seed)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_train_glt_falls_from_300_to_5_with_attributes_7_to_2_to_1(root: Path, seed: int) -> None:
    task = build("glt", root, seed)
    falling = sorted(task.class_counts.tolist(), reverse=True)
    assert (falling[0], falling[-1]) == (300, 5)
    assert 7000 < len(task.train) < 7100
    for row in table(task.train).tolist():
        assert tuple(row) == shares(sum(row))


def test_test_gbl_has_equally_many_of_each_attribute_and_every_class(root: Path) -> None:
    counts = table(build("glt", root).test)
    assert (counts == counts[:, :1]).all()
    assert np.bincount(counts[:, 0]).tolist() == [0, 2, 1, 4, 93]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_balanced_parts_have_equally_many_of_each_class_and_no_image_is_in_two_splits(root: Path, seed: int) -> None:
    tasks = {protocol: build(protocol, root, seed) for protocol in ("clt", "glt", "alt")}
    assert (table(tasks["alt"].train) == (7, 2, 1)).all()
    assert (table(tasks["clt"].test) == (14, 4, 2)).all()
    for task in tasks.values():
        rows = torch.cat([split.rows for split in task.splits().values()])
        assert len(rows.unique()) == len(rows)
        assert (task.group_names, task.group_domains().tolist()) == (("common", "middling", "rare"), [0, 1, 2])
        assert (task.num_groups, task.default_model, task.input_shape) == (3, "resnet14", (3, 32, 32))


def test_protocols_share_what_the_benchmark_shares(root: Path) -> None:
    clt, glt, alt = (build(protocol, root) for protocol in ("clt", "glt", "alt"))
    assert torch.equal(clt.train.rows, glt.train.rows)
    assert torch.equal(glt.test.rows, alt.test.rows)
    assert clt.train.source is glt.train.source
    assert len({clt.data_hash, glt.data_hash, alt.data_hash}) == 3


def test_metadata_have_at_most_two_of_a_cluster_and_some_of_every_class(root: Path) -> None:
    task = build("glt", root)
    counts = table(task.metadata)
    assert counts.max() == 4
    assert 8 <= counts.sum(1).min() <= counts.sum(1).max() == 12
