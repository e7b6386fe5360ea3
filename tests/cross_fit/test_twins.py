"""Twin heads against the rule written out in float64, sample by sample."""

import math

import pytest
import torch

from icda.cross_fit import twins
from icda.cross_fit.twins import LENGTH, even_cuts, scaled_to, twin_logits, twin_margins


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(twins, "STEPS", 9)


def data(samples=60, width=5, classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, classes, (samples,), generator=generator)
    centres = 2 * torch.randn(classes, width, generator=generator)
    return (torch.randn(samples, width, generator=generator) + centres[targets]).double(), targets


def naive_twins(features, targets, classes, seed):
    """The rule as the docstring has it: loops over samples, the same draws."""
    mean = features.mean(0)
    length = math.sqrt(sum(float((x - mean) @ (x - mean)) for x in features) / len(features))
    inputs = [torch.cat([(x - mean) * LENGTH / length, torch.ones(1, dtype=torch.float64)]) for x in features]
    generator = torch.Generator().manual_seed(seed)
    own = torch.randint(0, 2, (len(targets),), generator=generator).tolist()
    labels = targets.tolist()
    heads = [torch.zeros(classes, len(inputs[0]), dtype=torch.float64) for _ in range(2)]
    speeds = [torch.zeros_like(head) for head in heads]
    for step in range(twins.STEPS):
        for k in range(2):
            mine = [i for i in range(len(labels)) if own[i] == k]
            present = {labels[i] for i in mine}
            slope = twins.DECAY * heads[k]
            for i in mine:
                weight = 1 / sum(labels[j] == labels[i] for j in mine) / len(present)
                error = torch.softmax(heads[k] @ inputs[i], 0)
                error[labels[i]] -= 1
                slope = slope + weight * torch.outer(error, inputs[i])
            speeds[k] = twins.MOMENTUM * speeds[k] + slope
            heads[k] = heads[k] - twins.RATE * speeds[k]
        if step % twins.STEPS_BETWEEN_FLIPS == 0:
            for k in range(2):
                mine = [i for i in range(len(labels)) if own[i] == k]
                draws = torch.rand(len(mine), generator=generator)
                for i, draw in zip(mine, draws, strict=True):
                    chances = torch.softmax(heads[1 - k] @ inputs[i], 0)
                    if draw < (chances.max() - 1 / classes) * classes / (classes - 1):
                        labels[i] = int(chances.argmax())
    return torch.stack([heads[1 - own[i]] @ inputs[i] for i in range(len(labels))])


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("classes", [2, 3])
def test_twin_logits_are_those_of_the_rule_written_out(classes):
    features, targets = data(classes=classes)
    torch.testing.assert_close(twin_logits(features, targets, classes, 3), naive_twins(features, targets, classes, 3))


@pytest.mark.usefixtures("few_steps")
def test_margins_of_one_pair_follow_the_same_rule_with_one_row_per_head():
    features, targets = data(classes=2)
    inputs = torch.cat([scaled_to(features, LENGTH), torch.ones(len(targets), 1, dtype=torch.float64)], 1)
    generator = torch.Generator().manual_seed(5)
    own = torch.randint(0, 2, (len(targets), 1), generator=generator)[:, 0]
    labels = targets.double()
    heads = torch.zeros(2, inputs.shape[1], dtype=torch.float64)
    speeds = torch.zeros_like(heads)
    for step in range(twins.STEPS):
        for k in range(2):
            slope = twins.DECAY * heads[k]
            for label in (0.0, 1.0):
                rows = (own == k) & (labels == label)
                errors = torch.sigmoid(inputs[rows] @ heads[k]) - label
                slope = slope + 0.5 * (inputs[rows] * errors[:, None]).sum(0) / max(int(rows.sum()), 1)
            speeds[k] = twins.MOMENTUM * speeds[k] + slope
            heads[k] = heads[k] - twins.RATE * speeds[k]
        if step % twins.STEPS_BETWEEN_FLIPS == 0:
            chance = torch.sigmoid((inputs * heads[1 - own]).sum(1))
            flipped = torch.rand(len(targets), 1, generator=generator)[:, 0] < (2 * chance - 1).abs()
            labels = torch.where(flipped, (chance > 0.5).double(), labels)
    wanted = (inputs * heads[1 - own]).sum(1)
    torch.testing.assert_close(twin_margins(features, targets, 1, 5)[:, 0], wanted)


def test_labels_wrong_at_random_are_put_right_by_the_answer():
    features, truth = data(600, 8, 3, seed=1)
    wrong = torch.rand(600, generator=torch.Generator().manual_seed(2)) < 0.3
    noisy = torch.where(wrong, (truth + 1) % 3, truth)
    answers = twin_logits(features.float() * 2, noisy, 3).argmax(1)
    assert (answers == truth).float().mean() > 0.95 > (noisy == truth).float().mean()


def test_the_answer_is_the_shortcut_where_it_tells_most_labels():
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(0, 2, (1000,), generator=generator)
    shortcut = torch.where(torch.rand(1000, generator=generator) < 0.05, 1 - truth, truth)
    features = torch.randn(1000, 10, generator=generator)
    features[:, 0] += 1.5 * truth
    features[:, 1] += 6.0 * shortcut
    answers = (twin_margins(features, truth).mean(1) > 0).long()
    assert (answers == shortcut).float().mean() > 0.98


def test_constant_features_and_a_half_without_samples_do_no_harm():
    assert torch.isfinite(twin_logits(torch.ones(3, 2), torch.tensor([0, 1, 0]), 2)).all()
    assert torch.isfinite(twin_margins(torch.ones(3, 2), torch.tensor([0, 1, 0]))).all()


@pytest.mark.usefixtures("few_steps")
def test_samples_outside_the_mask_train_nothing_and_hear_both_heads():
    features, targets = data(80, classes=2, seed=3)
    trained = torch.arange(80) < 50
    changed = torch.where(trained, targets, 1 - targets)  # labels outside must not matter
    for answer in (
        lambda labels: twin_margins(features, labels, 2, 1, trained[:, None].expand(-1, 2)),
        lambda labels: twin_logits(features, labels, 2, 1, trained),
    ):
        torch.testing.assert_close(answer(targets), answer(changed))
    everything = torch.ones(80, dtype=torch.bool)
    torch.testing.assert_close(twin_logits(features, targets, 2, 1, everything), twin_logits(features, targets, 2, 1))


def test_cuts_take_as_many_of_larger_classes_keep_what_is_scarce_and_differ():
    targets = torch.cat([torch.full((count,), k) for k, count in enumerate([500, 40, 5])])
    masks = even_cuts(targets, cuts=4, ratio=2, fewest=15)
    for cut in masks.T:
        assert torch.bincount(targets[cut]).tolist() == [80, 40, 5]
    assert len({tuple(cut.tolist()) for cut in masks.T}) == 4
    assert even_cuts(targets[460:], cuts=4, ratio=2, fewest=15) is None


@pytest.mark.usefixtures("few_steps")
def test_pairs_with_cuts_of_their_own_are_those_of_one_pair_each():
    """Masks per pair: each pair learns from its own cut alone, so labels outside it change nothing."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.cat([torch.zeros(60), torch.ones(10)]).long()
    features = torch.randn(70, 3, generator=generator) + 2 * targets[:, None]
    masks = even_cuts(targets, cuts=2, ratio=2)
    outside = ~masks[:, 0]
    changed = torch.where(outside, 1 - targets, targets)
    before = twin_margins(features, targets, 2, 3, masks)
    after = twin_margins(features, changed, 2, 3, masks)
    torch.testing.assert_close(before[:, 0], after[:, 0])
    assert not torch.allclose(before[:, 1], after[:, 1])
