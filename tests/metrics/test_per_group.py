import numpy as np
import pytest
import sklearn.metrics
import torch

from icda.metrics.per_group import per_group_accuracy, per_membership_accuracy, train_weighted_accuracy


@pytest.mark.parametrize("seed", range(5))
def test_each_group_has_the_accuracy_of_its_samples(seed: int) -> None:
    rng = np.random.default_rng(seed)
    predictions, targets = rng.integers(0, 3, (2, 80))
    groups = rng.integers(0, 6, 80)
    found = per_group_accuracy(torch.tensor(predictions == targets), torch.tensor(groups), num_groups=7)
    for group in range(6):
        mask = groups == group
        assert found[group] == pytest.approx(sklearn.metrics.accuracy_score(targets[mask], predictions[mask]))
    assert found[6] is None


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.int64])
@pytest.mark.parametrize("seed", range(3))
def test_each_overlapping_group_has_the_accuracy_of_all_its_samples(seed: int, kind: torch.dtype) -> None:
    rng = np.random.default_rng(seed)
    correct, memberships = rng.random(700) < 0.6, rng.random((700, 5)) < [0.9, 0.5, 0.1, 0.01, 0.0]
    found = per_membership_accuracy(torch.tensor(correct), torch.tensor(memberships).to(kind))
    for group in range(5):
        hits = total = 0
        for i in range(700):
            if memberships[i, group]:
                total += 1
                hits += int(correct[i])
        assert found[group] == (hits / total if total else None)
    assert found[4] is None


def test_disjoint_memberships_are_groups() -> None:
    rng = np.random.default_rng(0)
    groups, correct = torch.tensor(rng.integers(0, 4, 200)), torch.tensor(rng.random(200) < 0.7)
    memberships = torch.nn.functional.one_hot(groups, 5)
    assert per_membership_accuracy(correct, memberships) == per_group_accuracy(correct, groups, 5)


def test_waterbirds_average_is_weighted_by_training_shares() -> None:
    counts, accuracies = [3498, 184, 56, 1057], [0.99, 0.8, 0.6, 0.9]
    expected = np.average(accuracies, weights=counts)
    assert train_weighted_accuracy(accuracies, torch.tensor(counts)) == pytest.approx(expected)


def test_train_weighted_is_plain_accuracy_when_the_split_is_mixed_like_training() -> None:
    rng = np.random.default_rng(0)
    groups, correct = torch.tensor(rng.integers(0, 4, 200)), torch.tensor(rng.random(200) < 0.7)
    accuracies = per_group_accuracy(correct, groups, 4)
    weighted = train_weighted_accuracy(accuracies, 10 * torch.bincount(groups, minlength=4))
    assert weighted == pytest.approx(correct.double().mean().item())


def test_absent_groups_leave_their_weight_to_the_others() -> None:
    assert train_weighted_accuracy([0.5, None, 1.0], [30, 60, 10]) == pytest.approx((0.5 * 30 + 1.0 * 10) / 40)


def test_without_training_counts_there_is_no_train_weighted_accuracy() -> None:
    assert train_weighted_accuracy([0.5], None) is None
    assert train_weighted_accuracy([0.5, None], [0, 10]) is None
