"""Evidence on two classes: figures against oracles, and what a shortcut, noise and overlap look like."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from icda.cross_fit.pairs import measure_pair, ratio_of_medians, share, within_answers


def two_classes(samples=1200, minority=0.0, noise=0.0, seed=0):
    """A class that shows in some features and, with a minority, a shortcut that shows more in others."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, 2, samples)
    features = generator.normal(size=(samples, 24))
    features[:, :8] += 0.3 * (2 * truth[:, None] - 1)
    if minority:
        shortcut = np.where(generator.random(samples) < minority, 1 - truth, truth)
        features[:, 8:12] += 2.5 * (2 * shortcut[:, None] - 1)
    targets = np.where(generator.random(samples) < noise, 1 - truth, truth)
    return torch.from_numpy(features).float(), torch.from_numpy(targets)


def as_logits(scores):
    """Logits whose difference is the score."""
    return torch.stack([torch.zeros_like(scores), scores], 1)


def test_of_several_classes_each_label_is_told_from_the_answer_where_that_was_given():
    generator = torch.Generator().manual_seed(2)
    truth = torch.arange(600) % 3
    answers = (truth + (torch.rand(600, generator=generator) < 0.3).long()) % 3
    logits = torch.randn(600, 3, generator=generator) + torch.nn.functional.one_hot(truth, 3)
    areas, masses, confirmed = [], [], []
    for a in range(3):
        c = (a - 1) % 3  # the only other label among samples with answer a
        here = (answers == a) & ((truth == a) | (truth == c))
        areas.append(roc_auc_score(truth[here] == c, logits[here, c] - logits[here, a]))
        masses.append(int((truth[here] == c).sum()))
        here = (answers == truth) & ((truth == a) | (truth == c))
        confirmed.append(roc_auc_score(truth[here] == c, logits[here, c] - logits[here, a]))
    assert within_answers(logits, truth, answers)[0] == pytest.approx(np.average(areas, weights=masses))
    told = within_answers(logits, truth, answers, confirmed=True)[0]
    assert told == pytest.approx(np.average(confirmed, weights=masses))
    shuffled = answers[torch.randperm(600, generator=generator)]
    area, error = within_answers(torch.randn(600, 3, generator=generator), shuffled, answers)
    assert abs(area - 0.5) < 3 * error


def test_readability_is_the_area_within_each_answer():
    generator = torch.Generator().manual_seed(0)
    answers = torch.randint(0, 2, (300,), generator=generator)
    targets = torch.where(torch.rand(300, generator=generator) < 0.2, 1 - answers, answers)
    scores = torch.randn(300, generator=generator) + targets
    areas, masses = [], []
    for answer in (0, 1):
        here = answers == answer
        areas.append(roc_auc_score(targets[here], scores[here]))
        masses.append(int(min(targets[here].sum(), (1 - targets[here]).sum())))
    area, error = within_answers(as_logits(scores), targets, answers)
    assert area == pytest.approx(np.average(areas, weights=masses))
    assert 0 < error < 0.1


def test_the_error_of_the_readability_is_the_spread_over_random_scores():
    generator = torch.Generator().manual_seed(1)
    answers = torch.arange(120) % 2
    targets = torch.where(torch.arange(120) % 5 == 0, 1 - answers, answers)
    found = [within_answers(as_logits(torch.randn(120, generator=generator)), targets, answers) for _ in range(400)]
    assert np.std([area for area, _ in found]) == pytest.approx(found[0][1], rel=0.15)
    assert np.mean([area for area, _ in found]) == pytest.approx(0.5, abs=0.02)


def test_one_label_only_within_each_answer_says_nothing():
    answers = torch.tensor([0, 0, 1, 1])
    assert within_answers(as_logits(torch.arange(4.0)), answers, answers) == (0.5, 0.5)


def test_empty_groups_count_as_served_and_have_no_ratio():
    assert share(torch.zeros(0, dtype=torch.bool)) == 1.0
    assert ratio_of_medians(torch.zeros(0), torch.ones(3)) == 0.0


def test_a_shortcut_hurts_few_surely_and_the_treatment_serves_them():
    found = measure_pair(*two_classes(minority=0.06))
    assert found.against == pytest.approx(0.06 * 1200, rel=0.3)
    assert found.agreement > 0.98
    assert found.sureness > 0.5
    assert found.hurt_before < 0.4 < found.hurt_after
    assert found.gain > 0.1


def test_wrong_labels_are_contradicted_surely_but_nothing_serves_them():
    features, targets = two_classes(noise=0.0)
    features[:, :8] *= 4
    wrong = torch.rand(len(targets), generator=torch.Generator().manual_seed(0)) < 0.15
    found = measure_pair(features, torch.where(wrong, 1 - targets, targets))
    assert found.sureness > 0.5
    assert found.error_sureness > 0.6
    assert found.gain < 0.05


def test_overlap_is_contradicted_near_the_border():
    generator = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 2, (1500,), generator=generator)
    features = torch.randn(1500, 6, generator=generator)
    features[:, 0] += 4.0 * targets
    found = measure_pair(features, targets)
    assert found.sureness < 0.35


def test_the_same_seed_gives_the_same_evidence():
    features, targets = two_classes(400, minority=0.1)
    assert measure_pair(features, targets, seed=4) == measure_pair(features, targets, seed=4)
