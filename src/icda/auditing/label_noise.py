"""Labels that look wrong: confident learning on cross-fitted probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from icda.extras import require


@dataclass(frozen=True)
class LabelNoise:
    """Suspected wrong labels, after Northcutt, Jiang & Chuang, Confident learning (JAIR 2021).

    `thresholds` (C,) is each class's mean self-confidence. `joint` (C, C) estimates how many samples labelled as the row
    are of the column; `rate` is its share off the diagonal. Issues are marked by our rule, or by cleanlab's
    `find_label_issues` where that was asked for.
    """

    thresholds: np.ndarray
    joint: np.ndarray
    num_issues: int
    found_by: str = "icda"

    @property
    def rate(self) -> float:
        return float(1 - np.trace(self.joint) / self.joint.sum())


def cleanlab_issues(probabilities: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The labels (N,) that cleanlab marks."""
    cleanlab = require("cleanlab.filter", "audit", "cleanlab's label issues")
    return np.asarray(cleanlab.find_label_issues(targets, probabilities, n_jobs=1), dtype=bool)


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


def confident_class(probabilities: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """The likeliest class among those whose probability reaches their threshold; -1 where none does."""
    reached = np.where(probabilities >= thresholds, probabilities, -1.0)
    return np.where(reached.max(1) >= 0, reached.argmax(1), -1)


def scaled_joint(table: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Counts (C, C) by label and confident class, each row scaled to the number (C,) of samples with that label.

    >>> scaled_joint(np.array([[3, 1], [0, 0]]), np.array([8, 5])).tolist()
    [[6.0, 2.0], [0.0, 5.0]]
    """
    table = table.astype(float)
    table[table.sum(1) == 0] = np.eye(len(counts))[table.sum(1) == 0]  # nothing confident: take the labels as they are
    return table / table.sum(1, keepdims=True) * counts[:, None]
