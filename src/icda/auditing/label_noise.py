"""Labels that look wrong: confident learning on cross-fitted probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from icda.extras import require


@dataclass(frozen=True)
class LabelNoise:
    """Suspected wrong labels, after Northcutt, Jiang & Chuang, Confident learning (JAIR 2021).

    `quality` (N,) is small for labels that look wrong. `thresholds` (C,) is each class's mean self-confidence. `joint`
    (C, C) estimates how many samples labelled as the row are of the column; `rate` is its share off the diagonal.
    `issues` (N,) marks the suspects: by our rule, or by cleanlab's `find_label_issues` where that was asked for.
    """

    quality: np.ndarray
    thresholds: np.ndarray
    joint: np.ndarray
    rate: float
    issues: np.ndarray
    found_by: str

    @property
    def num_issues(self) -> int:
        return int(self.issues.sum())


@dataclass(frozen=True)
class NoiseFigures:
    """The same without a number per sample, for rows that are not in memory."""

    thresholds: np.ndarray
    joint: np.ndarray
    num_issues: int
    found_by: str = "icda"

    @property
    def rate(self) -> float:
        return wrong_share(self.joint)


def find_label_noise(probabilities: np.ndarray, targets: np.ndarray, use_cleanlab: bool = False) -> LabelNoise:
    """Score every label, and mark those that are confidently another class's."""
    thresholds = self_confidence(probabilities, targets)
    confident = confident_class(probabilities, thresholds)
    joint = confident_joint(confident, targets, len(thresholds))
    issues = (confident >= 0) & (confident != targets)
    if use_cleanlab:
        cleanlab = require("cleanlab.filter", "audit", "cleanlab's label issues")
        issues = np.asarray(cleanlab.find_label_issues(targets, probabilities, n_jobs=1), dtype=bool)
    found_by = "cleanlab" if use_cleanlab else "icda"
    return LabelNoise(label_quality(probabilities, targets), thresholds, joint, wrong_share(joint), issues, found_by)


def label_quality(probabilities: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """p_y / (p_y + p_c) with c the likeliest other class: how sure one may be of the label against its best rival.

    Ours. It orders samples as the margin of their logits does, and leaves out what the other classes share among them.

    >>> label_quality(np.array([[0.6, 0.2, 0.2], [0.1, 0.3, 0.6]]), np.array([0, 1])).round(3).tolist()
    [0.75, 0.333]
    """
    rows = np.arange(len(targets))
    own = probabilities[rows, targets]
    others = probabilities.copy()
    others[rows, targets] = 0
    return own / np.maximum(own + others.max(1), np.finfo(np.float64).tiny)


def self_confidence(probabilities: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Mean p_c over the samples labelled c, for each class c."""
    own = probabilities[np.arange(len(targets)), targets]
    return np.bincount(targets, own) / np.bincount(targets)


def confident_class(probabilities: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The likeliest class among those whose probability reaches their threshold; -1 where none does."""
    reached = np.where(probabilities >= thresholds, probabilities, -1.0)
    return np.where(reached.max(1) >= 0, reached.argmax(1), -1)


def confident_joint(confident: np.ndarray, targets: np.ndarray, num_classes: int) -> np.ndarray:
    """Samples by label (row) and confident class (column), each row scaled to the number of samples with that label."""
    counted = confident >= 0
    pairs = targets[counted] * num_classes + confident[counted]
    table = np.bincount(pairs, minlength=num_classes**2).reshape(num_classes, -1)
    return scaled_joint(table, np.bincount(targets, minlength=num_classes))


def scaled_joint(table: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Counts (C, C) by label and confident class, each row scaled to the number (C,) of samples with that label.

    >>> scaled_joint(np.array([[3, 1], [0, 0]]), np.array([8, 5])).tolist()
    [[6.0, 2.0], [0.0, 5.0]]
    """
    table = table.astype(float)
    table[table.sum(1) == 0] = np.eye(len(counts))[table.sum(1) == 0]  # nothing confident: take the labels as they are
    return table / table.sum(1, keepdims=True) * counts[:, None]


def wrong_share(joint: np.ndarray) -> float:
    """The share of the joint that lies off its diagonal."""
    return float(1 - np.trace(joint) / joint.sum())
