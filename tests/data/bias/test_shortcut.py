"""Planted shortcuts: what they tell in training and elsewhere, how they look, and what stays as it was."""

import pytest
import torch

from icda.data import Task, create_task
from icda.data.bias.shortcut import PlantedImages, plant, plant_shortcut, planted_attributes
from icda.data.sources import FeatureArray, TextArray
from icda.data.task import Split
from icda.data.tokens import hash_tokenise


def marks_of(task, split):
    return task.group_domains()[split.groups]


def test_a_mark_tells_the_class_at_the_rate_and_the_other_classes_evenly():
    targets = torch.randint(4, (40_000,))
    marks = planted_attributes(targets, 4, 0.7, torch.Generator().manual_seed(0))
    assert float((marks == targets).float().mean()) == pytest.approx(0.7, abs=0.01)
    for label in range(4):
        shares = torch.bincount(marks[targets == label], minlength=4) / (targets == label).sum()
        for mark in range(4):
            assert float(shares[mark]) == pytest.approx(0.7 if mark == label else 0.1, abs=0.02)


@pytest.mark.parametrize("kind", ["patch", "frame", "texture"])
def test_in_a_task_of_images_training_is_biased_and_the_rest_is_not(kind):
    base = create_task("digits")
    task = plant_shortcut(base, kind, 0.95, seed=1)
    assert float((marks_of(task, task.train) == task.train.targets).float().mean()) == pytest.approx(0.95, abs=0.03)
    assert float((marks_of(task, task.test) == task.test.targets).float().mean()) == pytest.approx(0.1, abs=0.05)
    assert torch.equal(task.train.targets, base.train.targets)
    assert len(task.test) == len(base.test)
    agrees = marks_of(task, task.train) == task.train.targets
    for i in range(0, len(task.train), 97):
        expected = 2 * int(task.train.targets[i]) + (0 if agrees[i] else 1)
        assert task.train.memberships[i].nonzero().flatten().tolist() == [expected]


def test_the_seed_decides_and_the_hash_knows():
    base = create_task("digits")
    first, again, other = (plant_shortcut(base, "frame", 0.9, seed) for seed in (0, 0, 1))
    assert first.data_hash == again.data_hash
    assert len({first.data_hash, other.data_hash, base.data_hash, plant_shortcut(base, "patch", 0.9, 0).data_hash}) == 4


@pytest.mark.parametrize("kind", ["patch", "frame", "colour", "texture"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mark_looks_different_and_the_image_given_stays(kind, channels):
    images = torch.randn(6, channels, 16, 16)
    before = images.clone()
    made = [plant(images, torch.full((6,), mark), kind, 5) for mark in range(5)]
    assert torch.equal(images, before)
    for one in range(5):
        assert made[one].shape == images.shape
        for other in range(one):
            assert all(not torch.equal(made[one][i], made[other][i]) for i in range(6))


def test_a_patch_covers_a_corner_and_a_frame_the_edge_and_nothing_else():
    images = torch.randn(1, 3, 16, 16)
    patched, framed = (plant(images, torch.tensor([1]), kind, 4) for kind in ("patch", "frame"))
    changed = (patched != images).any(1)[0]
    assert changed[:3, :3].all()
    assert int(changed.sum()) == 9
    changed = (framed != images).any(1)[0]
    assert not changed[1:-1, 1:-1].any()
    assert int(changed.sum()) == 16**2 - 14**2


def test_augmentation_comes_before_the_mark():
    class Noise:
        def __len__(self):
            return 4

        def fetch(self, rows, generator=None):
            return torch.rand(len(rows), 1, 8, 8, generator=generator) if generator else torch.zeros(len(rows), 1, 8, 8)

    source = PlantedImages(Noise(), torch.arange(4), torch.tensor([0, 1, 0, 1]), "patch", 2)
    augmented = source.fetch(torch.tensor([1, 0]), torch.Generator().manual_seed(0))
    assert (augmented[0, 0, :2, :2] == 2).all()
    assert (augmented[1, 0, :2, :2] == -2).all()
    assert augmented[0, 0, 3:].unique().numel() > 10


def test_a_text_begins_with_its_mark():
    source = TextArray(["good film", "bad film", "so so", "dull"], hash_tokenise, 8)
    split = Split(source, torch.tensor([0, 1, 2, 3]), torch.tensor([1, 0, 1, 0]))
    base = Task("films", 2, split, None, split, input_kind="text", input_shape=(8,))
    task = plant_shortcut(base, "token", 1.0)
    assert isinstance(task.train.source, TextArray)
    assert task.train.source.texts == ["mark1 good film", "mark0 bad film", "mark1 so so", "mark0 dull"]
    assert task.membership_names is None
    assert task.num_groups == 4
    words, before = (texts.fetch(torch.tensor([0]))["input_ids"][0] for texts in (task.train.source, source))
    assert words[0] == hash_tokenise(["mark1"])[0][0]
    assert words[1:3].tolist() == before[:2].tolist() == [hash_tokenise([word])[0][0] for word in ("good", "film")]


def test_a_kind_that_does_not_fit_the_task_is_refused():
    digits = create_task("digits")
    with pytest.raises(ValueError, match="'token' is planted in tasks of texts, and 'digits' has image"):
        plant_shortcut(digits, "token", 0.9)
    with pytest.raises(ValueError, match=r"one of patch, frame, colour, texture, token, got 'smell'"):
        plant_shortcut(digits, "smell", 0.9)
    with pytest.raises(ValueError, match=r"rate is the share .* in \[0, 1\], got 1.5"):
        plant_shortcut(digits, "frame", 1.5)
    split = Split(FeatureArray(torch.eye(4)), torch.arange(4), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(ValueError, match="'patch' is planted in tasks of images, and 'table' has features"):
        plant_shortcut(Task("table", 2, split, None, split, input_kind="features"), "patch", 0.9)
