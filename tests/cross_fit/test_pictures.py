"""Untrained filters: what they see in pictures, and that labels are read off it where they are right, and only there."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from torch.nn import functional as F

from icda.cross_fit.marks import filtered, shrink
from icda.cross_fit.network_verdicts import READ, read_labels
from icda.cross_fit.networks import HeldOut

COUNT = 800


def striped(seed):
    """Pictures (N, 3, 24, 24) with noise, and whether their stripes lie (0) or stand (1); where they begin varies."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(2, (COUNT,), generator=generator)
    begin = torch.randint(8, (COUNT, 1, 1), generator=generator)
    waves = ((torch.arange(24) + begin) % 8 < 4).float().expand(COUNT, 24, 24)
    waves = torch.where(targets[:, None, None] == 0, waves.transpose(1, 2), waves)
    return waves[:, None] + torch.randn(COUNT, 3, 24, 24, generator=generator), targets


def test_what_the_filters_see_tells_stripes_that_no_pixel_tells():
    images, targets = striped(0)
    shrunk = shrink(images)
    head = LogisticRegression(max_iter=500)
    assert cross_val_score(head, filtered(shrunk, seed=0), targets).mean() > 0.95
    assert cross_val_score(head, shrunk.flatten(1), targets).mean() < 0.6


def test_features_are_those_of_the_seed_alone():
    images = shrink(striped(0)[0])
    features = filtered(images, seed=3)
    assert torch.equal(features, filtered(images, seed=3))
    assert not torch.equal(features, filtered(images, seed=4))
    assert torch.equal(features[:5], filtered(images[:5], seed=3))


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 3, 5), (4, 40, 16)])
def test_pictures_of_any_shape_give_finite_features(shape):
    images = torch.rand(6, *shape)
    images[0] = 0.0
    images[1, 0, 0, 0] = float("nan")
    assert filtered(shrink(images), seed=0).isfinite().all()


@pytest.mark.parametrize(("wrong", "read"), [(False, True), (True, False)])
def test_labels_that_networks_contradict_are_read_if_the_networks_are_wrong(wrong, read):
    images, stripes = striped(1)
    against = torch.rand(COUNT, generator=torch.Generator().manual_seed(2)) < 0.15
    # A shortcut: the networks err. Wrong labels: they answer with what the picture shows, and the labels err.
    answers, targets = (stripes, stripes ^ against) if wrong else (stripes ^ against, stripes)
    logits = 4.0 * F.one_hot(answers, 2)
    held_out = HeldOut(
        logits, targets, 1.0, read=read_labels(filtered(shrink(images), seed=0), targets, logits, seed=0)
    )
    assert (held_out.readability > 2 * READ.at) == read
    assert (held_out.readability < READ.at) != read
