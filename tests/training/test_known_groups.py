"""Training with groups that are known for some samples: the others are read before the first step."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from icda.data.registry import create_task
from icda.errors import InputError
from icda.training import TrainConfig, train
from icda.training.known_groups import with_read_groups


def forgotten(task, every=8):
    """The task with the groups of most samples taken away; some of each are known."""
    splits = {}
    for name, split in task.splits().items():
        groups = split.groups.clone()
        for group in groups.unique():
            rows = (split.groups == group).nonzero().flatten()
            keep = max(2, len(rows) // every) if name == "train" else 0
            groups[rows[keep:]] = -1
        splits[name] = replace(split, groups=groups)
    return replace(task, **splits)


def test_colours_of_digits_are_read_off_their_pixels():
    task = create_task("digits_coloured")
    with pytest.warns(UserWarning, match="was read off the others"):
        read = with_read_groups(forgotten(task))
    for name, split in read.splits().items():
        assert (split.groups == task.splits()[name].groups).double().mean() > 0.95, name
    assert with_read_groups(task) is task


def test_a_file_with_holes_in_its_groups_trains_as_one_without(tmp_path):
    generator = np.random.default_rng(0)
    y = np.arange(600) % 2
    place = np.where(generator.random(600) < 0.15, 1 - y, y)
    X = generator.normal(size=(600, 10)).astype(np.float32)
    X[:, 0] += 1.5 * y
    X[:, 1:3] += 4 * place[:, None]
    known = np.where(generator.random(600) < 0.3, np.array(["land", "sea"])[place], "")
    np.savez(tmp_path / "data.npz", X=X, y=y, group=known)
    config = TrainConfig(data=str(tmp_path / "data.npz"), method="group_prior", epochs=2, out=str(tmp_path / "run"))
    with pytest.warns(UserWarning, match="was read off the others"):
        result = train(config)
    assert result.group_names == ["0, land", "0, sea", "1, land", "1, sea"]
    assert sum(result.group_samples) == sum(map(sum, result.confusion)), "every sample of the test split has a group"


def test_groups_of_which_none_is_known_are_refused():
    task = create_task("digits_coloured")
    hidden = replace(task.train, groups=torch.full_like(task.train.groups, -1))
    with pytest.raises(InputError, match="no group of the training split is known"):
        with_read_groups(replace(task, train=hidden))
