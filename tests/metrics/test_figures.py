import numpy as np
import pytest
import scipy.special
import sklearn.metrics
import torch
from torchmetrics.functional.classification import (
    binary_calibration_error,
    multiclass_confusion_matrix,
    multiclass_precision,
)

from icda.metrics.figures import (
    band_accuracy,
    calibration_error,
    confusion_matrix,
    macro_precision,
    mean_known,
    negative_log_likelihood,
    per_class_accuracy,
    per_group_accuracy,
    per_membership_accuracy,
    train_weighted_accuracy,
    worst_known,
)


def labels(seed, num_classes, samples=60):
    generator = torch.Generator().manual_seed(seed)
    predictions, targets = torch.randint(num_classes, (2, samples), generator=generator)
    return predictions, targets


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_classes", [2, 7, 80])
def test_confusion_and_precision_agree_with_scikit_learn_and_torchmetrics(seed, num_classes):
    predictions, targets = labels(seed, num_classes)
    confusion = confusion_matrix(predictions, targets, num_classes)
    assert confusion == sklearn.metrics.confusion_matrix(targets, predictions, labels=range(num_classes)).tolist()
    assert confusion == multiclass_confusion_matrix(predictions, targets, num_classes).tolist()
    found = macro_precision(predictions, targets, num_classes)
    precision = sklearn.metrics.precision_score(targets, predictions, average="macro", zero_division=0)
    assert found == pytest.approx(precision, abs=1e-6)
    assert found == float(multiclass_precision(predictions, targets, num_classes, average="macro"))


def test_a_label_outside_the_classes_is_an_error():
    for targets in ([0, 2], [0, -1]):
        with pytest.raises(RuntimeError):
            confusion_matrix(torch.tensor([0, 1]), torch.tensor(targets), num_classes=2)


def test_per_class_accuracy_is_recall_and_none_for_absent_classes():
    predictions, targets = labels(0, num_classes=50)
    found = per_class_accuracy(confusion_matrix(predictions, targets, 50))
    recall = sklearn.metrics.recall_score(targets, predictions, labels=range(50), average=None, zero_division=np.nan)
    assert None in found
    np.testing.assert_allclose([np.nan if value is None else value for value in found], recall)


def test_a_count_on_a_threshold_is_medium():
    bands = band_accuracy([0.1, 0.2, 0.3, 0.4], [101, 100, 20, 19])
    assert bands == {"many_accuracy": 0.1, "medium_accuracy": 0.25, "few_accuracy": 0.4}


def test_what_has_no_known_value_is_none():
    empty = {"many_accuracy": 0.5, "medium_accuracy": None, "few_accuracy": None}
    assert band_accuracy([0.5, 0.5], torch.tensor([500, 500])) == empty
    assert band_accuracy([None, 0.5], [5, 500]) == empty  # its classes are absent
    assert mean_known([None]) is worst_known([]) is None


def test_each_group_has_the_accuracy_of_its_samples():
    rng = np.random.default_rng(0)
    predictions, targets = rng.integers(0, 3, (2, 80))
    groups = rng.integers(0, 6, 80)
    correct = torch.tensor(predictions == targets)
    found = per_group_accuracy(correct, torch.tensor(groups), num_groups=7)
    for group in range(6):
        mask = groups == group
        assert found[group] == pytest.approx(sklearn.metrics.accuracy_score(targets[mask], predictions[mask]))
    assert found[6] is None
    disjoint = torch.nn.functional.one_hot(torch.tensor(groups), 7)
    assert per_membership_accuracy(correct, disjoint) == found, "disjoint memberships are groups"


@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.int64])
def test_each_overlapping_group_has_the_accuracy_of_all_its_samples(kind):
    rng = np.random.default_rng(0)
    correct, memberships = rng.random(700) < 0.6, rng.random((700, 5)) < [0.9, 0.5, 0.1, 0.01, 0.0]
    found = per_membership_accuracy(torch.tensor(correct), torch.tensor(memberships).to(kind))
    for group in range(5):
        own = [bool(right) for right, belongs in zip(correct, memberships[:, group], strict=True) if belongs]
        assert found[group] == (sum(own) / len(own) if own else None)
    assert found[4] is None


def test_waterbirds_average_is_weighted_by_training_shares_and_absent_groups_leave_theirs_to_the_others():
    counts, accuracies = [3498, 184, 56, 1057], [0.99, 0.8, 0.6, 0.9]
    expected = np.average(accuracies, weights=counts)
    assert train_weighted_accuracy(accuracies, torch.tensor(counts)) == pytest.approx(expected)
    assert train_weighted_accuracy([0.5, None, 1.0], [30, 60, 10]) == pytest.approx((0.5 * 30 + 1.0 * 10) / 40)
    assert train_weighted_accuracy([0.5], None) is None
    assert train_weighted_accuracy([0.5, None], [0, 10]) is None


def naive_calibration_error(logits, targets, num_bins=15):
    probabilities = scipy.special.softmax(logits.double().numpy(), axis=1)
    confidence, predicted = probabilities.max(axis=1), logits.numpy().argmax(axis=1)
    error = 0.0
    for lower in range(num_bins):
        inside = np.minimum((confidence * num_bins).astype(int), num_bins - 1) == lower
        if inside.any():
            accuracy = (predicted[inside] == targets.numpy()[inside]).mean()
            error += inside.mean() * abs(accuracy - confidence[inside].mean())
    return error


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0, 300.0])
@pytest.mark.parametrize(("seed", "num_bins"), [(0, 15), (1, 10), (2, 1)])
def test_calibration_error_is_that_of_a_naive_count_and_of_torchmetrics(seed, num_bins, scale):
    generator = torch.Generator().manual_seed(seed)
    logits, targets = scale * torch.randn(300, 5, generator=generator), torch.randint(5, (300,), generator=generator)
    found = calibration_error(logits, targets, num_bins)
    assert found == pytest.approx(naive_calibration_error(logits, targets, num_bins), abs=1e-6)
    confidence = -torch.nn.functional.cross_entropy(logits, logits.argmax(dim=1), reduction="none").double()
    below_one = confidence.exp().clamp(max=1 - 1e-12)  # there a confidence of exactly 1 has a bin of its own
    expected = binary_calibration_error(below_one, logits.argmax(dim=1).eq(targets).long(), n_bins=num_bins)
    assert found == float(expected)
    log_loss = sklearn.metrics.log_loss(targets, scipy.special.softmax(logits.double().numpy(), axis=1))
    assert scale > 5 or negative_log_likelihood(logits, targets) == pytest.approx(log_loss, rel=1e-5)


def test_confidence_of_one_shares_the_last_bin_and_logits_between_zero_and_one_are_still_logits():
    logits = torch.tensor([[0.0, 100.0], [0.0, 5.0]])
    wrong, right = torch.tensor([0, 1]), torch.tensor([1, 1])
    sure = torch.softmax(torch.tensor([0.0, 5.0], dtype=torch.float64), 0)[1].item()
    assert calibration_error(logits, wrong) == pytest.approx((1 + sure) / 2 - 0.5, abs=1e-6)
    assert calibration_error(logits, right) == pytest.approx(1 - (1 + sure) / 2, abs=1e-6)
    small, targets = torch.tensor([[0.0, 0.9], [0.9, 0.1]]), torch.tensor([1, 0])
    assert calibration_error(small, targets) == pytest.approx(naive_calibration_error(small, targets), abs=1e-6)
