"""How well the audit finds what is known to be there: Waterbirds' minority groups, and flipped labels of digits."""

from __future__ import annotations

import time
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from icda.auditing import Audit, audit
from icda.data.registry import DatasetNotFoundError, data_root
from icda.extras import require

WATERBIRDS = "waterbirds_resnet50.npz"
NAMES = ("landbird", "waterbird")
FLIPPED = 0.2
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class AuditRow:
    """One score on one set: AUROC for the samples sought, and how many there are; seconds of the whole audit or fit.

    `accuracy_sought` is what heads that have not seen them get right of the sought samples, and `accuracy_suspected` what
    the audit, which does not know them, says of the part it suspects.
    """

    task: str
    part: str
    score: str
    seed: int
    auroc: float
    sought: int
    samples: int
    seconds: float
    accuracy_sought: float | None = None
    accuracy_suspected: float | None = None


def measure_audit(root: str | PathLike[str] | None = None) -> list[AuditRow]:
    """Both measurements; `root` is the folder with waterbirds_resnet50.npz, by default what ICDA_DATA names."""
    rows = waterbirds_rows(data_root(root) / WATERBIRDS)
    for seed in SEEDS:
        rows += flipped_digits_rows(seed)
    return rows


def waterbirds_rows(path: Path) -> list[AuditRow]:
    """The minority group of each class, of which the audit is not told, under the contrast's tie and under 1 - p_y."""
    if not path.is_file():
        raise DatasetNotFoundError(
            f"{path.absolute()} is not there: expected features, y, place and split of Waterbirds."
        )
    with np.load(path, allow_pickle=False) as file:
        train = file["split"] == 0
        features, targets, place = (file[name][train] for name in ("feats", "y", "place"))
    result = audit(features, targets, class_names=NAMES)
    rows = []
    for label, name in enumerate(NAMES):
        here = targets == label
        sought = here & (place != targets)
        for score, values in _tie_scores(result).items():
            rows.append(
                AuditRow(
                    "waterbirds",
                    name,
                    score,
                    0,
                    round(float(roc_auc_score(sought[here], values[here])), 4),
                    int(sought.sum()),
                    int(here.sum()),
                    round(result.seconds, 1),
                    round(float((result.ties.predicted == targets)[sought].mean()), 4),
                    _rounded(result.costs[label].accuracy_suspected),
                )
            )
    return rows


def flipped_digits_rows(seed: int) -> list[AuditRow]:
    """A fifth of the digits with another label, any of the nine alike: our score beside cleanlab's."""
    rank = require("cleanlab.rank", "audit", "the comparison with cleanlab")
    features, clean = load_digits(return_X_y=True)
    generator = np.random.default_rng(seed)
    flipped = generator.random(len(clean)) < FLIPPED
    targets = np.where(flipped, (clean + generator.integers(1, 10, len(clean))) % 10, clean)
    result = audit(features, targets, seed=seed)
    cleanlab_input = result.to_cleanlab()
    start = time.perf_counter()
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    usual = cross_val_predict(model, features, targets, cv=5, method="predict_proba")
    usual_seconds = time.perf_counter() - start
    # Low quality marks a wrong label: the AUROC is of its negative. The second name of cleanlab's is its way of scoring.
    scores = {
        "icda label_quality": (-result.noise.quality, result.seconds),
        "icda tie": (result.ties.tie, result.seconds),
    }
    for method in ("self_confidence", "normalized_margin"):
        ours = rank.get_label_quality_scores(**cleanlab_input, method=method)
        own = rank.get_label_quality_scores(targets, usual, method=method)
        scores[f"cleanlab {method}, icda's probabilities"] = (-ours, result.seconds)
        scores[f"cleanlab {method}, LogisticRegression"] = (-own, usual_seconds)
    return [
        AuditRow(
            "digits, 20 % flipped",
            "all",
            score,
            seed,
            round(float(roc_auc_score(flipped, values)), 4),
            int(flipped.sum()),
            len(targets),
            round(seconds, 1),
        )
        for score, (values, seconds) in scores.items()
    ]


def to_audit_table(rows: list[AuditRow]) -> Table:
    """The rows for a terminal."""
    table = Table("task", "part", "score", "seed", "AUROC", "sought", "samples", "s", title="what the audit finds")
    for row in rows:
        figures = (row.seed, f"{row.auroc:.4f}", row.sought, row.samples, row.seconds)
        table.add_row(row.task, row.part, row.score, *map(str, figures))
    return table


def _tie_scores(result: Audit) -> dict[str, np.ndarray]:
    own = result.ties.probabilities[np.arange(len(result)), result.targets]
    return {"tie": result.ties.tie, "1 - p_y": 1 - own}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
