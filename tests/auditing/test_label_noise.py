import numpy as np
import pytest
import torch
from cleanlab.count import estimate_joint
from cleanlab.filter import find_label_issues

from icda import extras
from icda.auditing import audit
from icda.auditing import run as audit_run
from icda.auditing.rows import LabelNoise, label_quality, scaled_joint, sum_figures


def find_label_noise(probabilities, labels):
    """As the audit puts it together."""
    counts = np.bincount(labels)
    thresholds = np.bincount(labels, probabilities[np.arange(len(labels)), labels]) / counts
    logits, targets = torch.from_numpy(np.log(probabilities)), torch.from_numpy(labels)
    sums = sum_figures(0, logits, torch.zeros(len(labels)), targets, thresholds)
    return LabelNoise(thresholds, scaled_joint(sums.confident, counts), sums.issues), sums.tied


@pytest.fixture
def given():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 200)
    logits = generator.normal(size=(200, 3)) + 2 * np.eye(3)[labels]
    probabilities = np.exp(logits)
    return probabilities / probabilities.sum(1, keepdims=True), labels


def test_thresholds_issues_and_joint_follow_confident_learning(given):
    probabilities, labels = given
    found, rows = find_label_noise(probabilities, labels)
    thresholds = [np.mean([p[c] for p, y in zip(probabilities, labels, strict=True) if y == c]) for c in range(3)]
    counts = np.zeros((3, 3))
    for i, (p, y) in enumerate(zip(probabilities, labels, strict=True)):
        reached = [c for c in range(3) if p[c] >= thresholds[c]]
        best = max(reached, key=lambda c: p[c]) if reached else None
        if best is not None:
            counts[y, best] += 1
        assert rows.issue[i] == (best is not None and best != y)
    joint = np.stack([counts[y] / counts[y].sum() * (labels == y).sum() for y in range(3)])
    np.testing.assert_allclose(found.thresholds, thresholds)
    np.testing.assert_allclose(found.joint, joint)
    assert found.rate == pytest.approx(1 - np.trace(joint) / len(labels))


def test_the_joint_is_cleanlabs(given):
    probabilities, labels = given
    joint = find_label_noise(probabilities, labels)[0].joint
    np.testing.assert_allclose(joint / joint.sum(), estimate_joint(labels, probabilities), atol=0.01)


def test_quality_orders_as_the_logit_margin(given):
    probabilities, labels = given
    margins = [np.log(p[y]) - np.log(np.delete(p, y).max()) for p, y in zip(probabilities, labels, strict=True)]
    np.testing.assert_allclose(label_quality(probabilities, labels), 1 / (1 + np.exp(-np.array(margins))))


def test_cleanlab_marks_the_issues_on_request():
    generator = np.random.default_rng(1)
    y = np.repeat([0, 1], 100)
    X = generator.normal(size=(200, 8)) + 2 * y[:, None]
    y[:8] = 1
    found = audit(X, y, use_cleanlab=True)
    assert found.noise.found_by == "cleanlab"
    np.testing.assert_array_equal(found.ties.issue, find_label_issues(**found.to_cleanlab()))
    assert found.ties.issue[:8].sum() >= 6
    assert found.ties.issue[8:].sum() <= 2


def test_without_cleanlab_the_extra_is_named_before_any_work(monkeypatch):
    def missing(module, extra, purpose):
        raise extras.MissingExtraError(f'{purpose} need the package {module!r}: pip install "icda[{extra}]"')

    monkeypatch.setattr(audit_run, "require", missing)
    monkeypatch.setattr(audit_run, "check_inputs", lambda *_: pytest.fail("work began"))
    with pytest.raises(extras.MissingExtraError, match=r"icda\[audit\]"):
        audit(np.zeros((4, 2)), [0, 0, 1, 1], use_cleanlab=True)


def test_a_class_without_a_confident_sample_keeps_its_labels():
    probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.6, 0.4]])
    found, _ = find_label_noise(probabilities, np.array([0, 0, 1, 1]))
    assert found.joint.sum(1).tolist() == [2, 2]
