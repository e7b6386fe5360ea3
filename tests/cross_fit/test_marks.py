"""Marks: planted ones are found, read and placed; parts of natural pictures are not taken for one."""

import itertools

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch.nn import functional as F

from icda.cross_fit import marks
from icda.cross_fit.marks import Mark, find_mark, neighbour_shares, shrink
from icda.cross_fit.network_verdicts import is_independent, mark_chance
from icda.cross_fit.networks import HeldOut
from icda.cross_fit.rules import NO, YES
from icda.data import create_task
from icda.data.bias.noise import noisy_labels
from icda.data.bias.shortcut import plant_shortcut


def pictures(task):
    return shrink(task.train.source.fetch(task.train.rows)), task.train.targets


def chance(mark, targets, followed=0.5):
    """With networks that know all labels, but follow the mark in a share of those that it contradicts."""
    against = (mark.answers != targets).nonzero().flatten()
    said = targets.clone()
    said[against[: round(followed * len(against))]] = mark.answers[against[: round(followed * len(against))]]
    return mark_chance(HeldOut(10.0 * F.one_hot(said, mark.classes), targets, 1.0, mark=mark._asdict()))


@pytest.mark.parametrize("kind", ["patch", "frame"])
@pytest.mark.parametrize("rate", [0.85, 0.95])
def test_a_planted_mark_is_found_and_read(kind, rate):
    task = plant_shortcut(create_task("digits"), kind, rate, seed=3)
    mark = find_mark(*pictures(task), 10, seed=0)
    planted = task.train.groups % 10
    assert (mark.answers == planted).double().mean() > 0.97
    assert mark.place == "top left"
    assert mark.errors == pytest.approx(1 - rate, abs=0.03)
    assert chance(mark, task.train.targets, followed=0.05) >= YES


def test_a_mark_is_found_among_wrong_labels():
    task = plant_shortcut(create_task("digits"), "frame", 0.95, seed=3)
    images, targets = pictures(task)
    given = noisy_labels(targets, "uniform", 10, 0.2, torch.Generator().manual_seed(0))
    assert chance(find_mark(images, given, 10, seed=0), given, followed=1.0) >= YES


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_a_part_of_ten_natural_classes_is_no_mark(noise):
    images, targets = pictures(create_task("digits"))
    given = noisy_labels(targets, "uniform", 10, noise, torch.Generator().manual_seed(0))
    assert chance(find_mark(images, given, 10, seed=0), given, followed=0.9) < 0.05


def test_a_part_that_tells_two_natural_classes_is_no_mark():
    """Of two digits some part nearly always tells; even if networks followed it none would be called a mark."""
    images, targets = pictures(create_task("digits"))
    chances = []
    for pair in itertools.combinations(range(0, 10, 2), 2):
        rows = torch.isin(targets, torch.tensor(pair))
        labels = (targets[rows] == pair[1]).long()
        mark = find_mark(images[rows], labels, 2, seed=0)
        assert mark.skill > 0.8 * mark.known
        chances.append(chance(mark, labels))
    assert max(chances) <= NO


@pytest.mark.parametrize(("classes", "noise"), [(2, 0.03), (5, 0.12), (10, 0.03), (10, 0.1)])
def test_an_object_whose_colour_is_the_class_is_not_taken_away(classes, noise):
    """Beside it the picture tells nothing: what it contradicts are wrong labels, and nothing could be kept."""
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        truth = torch.randint(classes, (900,), generator=generator)
        images = F.interpolate(torch.randn(900, 3, 4, 4, generator=generator), 16, mode="bilinear")
        colours = 2 * torch.randn(classes, 3, generator=generator)
        images[:, :, 6:10, 6:10] = colours[truth][:, :, None, None] + 0.1 * torch.randn(
            900, 3, 4, 4, generator=generator
        )
        given = noisy_labels(truth, "uniform", classes, noise, generator)
        mark = find_mark(images, given, classes, seed)
        assert mark.kept == 0.0
        assert not is_independent(mark)
        assert classes > 7 or chance(mark, given) <= NO


def test_a_pixel_that_is_no_number_spoils_nothing():
    images, targets = pictures(plant_shortcut(create_task("digits"), "patch", 0.9, seed=3))
    spoiled = images.clone()
    spoiled[5, 0, 3, 3], spoiled[6, 0, 0, 0] = torch.nan, torch.inf
    clean, found = (find_mark(shrink(given), targets, 10, seed=0) for given in (images, spoiled))
    assert (clean.answers == found.answers).double().mean() > 0.99


def test_a_mark_of_two_classes_is_found():
    images, targets = pictures(create_task("digits"))
    rows = torch.isin(targets, torch.tensor([3, 9]))
    labels, marked = (targets[rows] == 9).long(), images[rows].clone()
    stamped = torch.where(
        torch.rand(len(labels), generator=torch.Generator().manual_seed(0)) < 0.93, labels, 1 - labels
    )
    marked[:, :, :2, 6:] = 2.0 * stamped[:, None, None, None]
    mark = find_mark(marked, labels, 2, seed=0)
    assert mark.place == "top right"
    assert torch.equal(mark.answers, stamped)
    assert chance(mark, labels) >= YES
    assert chance(mark, labels, followed=0.0) <= NO, "networks see past it"


def test_samples_beyond_those_looked_at_are_read_by_them(monkeypatch):
    monkeypatch.setattr(marks, "SAMPLES", 300)
    monkeypatch.setattr(marks, "SCANNED", 200)
    monkeypatch.setattr(marks, "ROWS", 128)
    task = plant_shortcut(create_task("digits"), "patch", 0.9, seed=3)
    mark = find_mark(*pictures(task), 10, seed=0)
    assert len(mark.answers) == len(task.train) > 1000
    assert (mark.answers == task.train.groups % 10).double().mean() > 0.95
    assert mark.against < 60  # of the 300


@pytest.mark.parametrize("features", [2, 40])
def test_neighbours_are_those_of_scikit_learn(features):
    generator = torch.Generator().manual_seed(0)
    known, asked = torch.randn(60, features, generator=generator), torch.randn(9, features, generator=generator)
    targets = torch.randint(3, (60,), generator=generator)
    spread = known.std(0, correction=0)
    oracle = KNeighborsClassifier(marks.NEIGHBOURS).fit(known / spread, targets)
    votes = torch.from_numpy(oracle.predict_proba(asked / spread)) * marks.NEIGHBOURS
    expected = (votes + torch.bincount(targets, minlength=3) / 60) / (marks.NEIGHBOURS + 1)
    torch.testing.assert_close(neighbour_shares(known, targets, 3, asked).double(), expected, rtol=0, atol=1e-6)


def test_a_sample_does_not_vote_for_itself():
    known = torch.arange(20.0)[:, None]
    targets = torch.zeros(20, dtype=torch.long).index_fill(0, torch.tensor([7]), 1)
    assert neighbour_shares(known, targets, 2)[7, 1] < 0.01


@pytest.mark.parametrize("shape", [(12, 1, 1, 1), (12, 3, 3, 3), (12, 1, 128, 3), (12, 3, 5, 9), (2, 3, 40, 30)])
def test_few_and_small_pictures_say_nothing(shape):
    images = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(shape[0]) % 2
    assert chance(find_mark(shrink(images), targets, 2, seed=0), targets) < YES


@pytest.mark.parametrize(
    "change",
    [{"skill": 0.6}, {"overlap": 0.9}, {"kept": 0.3}, {"errors": 0.4}, {"against": 7}, {"against": 2}],
    ids=lambda change: next(iter(change)),
)
def test_every_condition_must_hold(change):
    targets = torch.arange(100) % 2
    answers = torch.where(torch.arange(100) < 10, 1 - targets, targets)
    mark = Mark(answers, 2, 0.95, 0.95, 0.05, 50, 0.5, 1.0, "top left")
    assert chance(mark, targets) >= YES
    assert chance(mark._replace(**change), targets) < (YES if change.get("against") == 7 else NO)
