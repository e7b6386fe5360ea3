"""How well the audit finds what is known to be there: Waterbirds' minority groups, and flipped labels of digits."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from icda.auditing import audit
from icda.data.registry import data_root
from icda.extras import require
from icda_bench.markdown import columns, grouped, markdown, numbers, spread
from icda_bench.options import Root
from icda_bench.rows import Row, publish
from icda_bench.studies.features import read_waterbirds

NAMES = ("landbird", "waterbird")
FLIPPED = 0.2
SEEDS = (0, 1, 2)


@dataclass
class Arguments:
    """How well the audit finds Waterbirds' minority groups and flipped labels of digits, beside cleanlab."""

    root: Root = None
    out: Path | None = None
    """CSV file to write (benchmarks/results/audit.csv is ours)."""


def run(options: Arguments) -> None:
    """A row is one score on one set: AUROC for the samples sought, and how many there are; seconds of the audit or fit.

    `accuracy_sought` is what heads that have not seen them get right of the sought samples, and `accuracy_suspected` what
    the audit, which does not know them, says of the part it suspects.
    """
    rows = waterbirds_rows(data_root(options.root))
    for seed in SEEDS:
        rows += flipped_digits_rows(seed)
    publish(audit_table, rows, options.out)


def waterbirds_rows(root: Path) -> list[Row]:
    """The minority group of each class, of which the audit is not told, under the contrast's tie and under 1 - p_y."""
    whole, split = read_waterbirds(root)
    train = whole.rows(split == 0)
    targets, place = train.targets, train.attributes["place"]
    result = audit(train.features, targets, class_names=NAMES)
    ties, probabilities = result.in_memory()
    rows: list[Row] = []
    own = probabilities[np.arange(len(result)), targets]
    for label, name in enumerate(NAMES):
        here = targets == label
        sought = here & (place != targets)
        for score, values in {"tie": ties.tie, "1 - p_y": 1 - own}.items():
            suspected = result.costs[label].accuracy_suspected
            rows.append(
                {
                    **{"task": "waterbirds", "part": name, "score": score, "seed": 0},
                    "auroc": round(float(roc_auc_score(sought[here], values[here])), 4),
                    **{"sought": int(sought.sum()), "samples": int(here.sum()), "seconds": round(result.seconds, 1)},
                    "accuracy_sought": round(float((ties.predicted == targets)[sought].mean()), 4),
                    "accuracy_suspected": None if suspected is None else round(suspected, 4),
                }
            )
    return rows


def flipped_digits_rows(seed: int) -> list[Row]:
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
        "icda label_quality": (-result.in_memory()[0].quality, result.seconds),
        "icda tie": (result.in_memory()[0].tie, result.seconds),
    }
    for method in ("self_confidence", "normalized_margin"):
        ours = rank.get_label_quality_scores(**cleanlab_input, method=method)
        own = rank.get_label_quality_scores(targets, usual, method=method)
        scores[f"cleanlab {method}, icda's probabilities"] = (-ours, result.seconds)
        scores[f"cleanlab {method}, LogisticRegression"] = (-own, usual_seconds)
    sizes = {"sought": int(flipped.sum()), "samples": len(targets)}
    return [
        {
            **{"task": "digits, 20 % flipped", "part": "all", "score": score, "seed": seed},
            "auroc": round(float(roc_auc_score(flipped, values)), 4),
            **{**sizes, "seconds": round(seconds, 1), "accuracy_sought": None, "accuracy_suspected": None},
        }
        for score, (values, seconds) in scores.items()
    ]


def audit_table(rows: list[Row]) -> str:
    """AUROC of each score for what is sought, over seeds."""
    places = grouped(rows, columns("task", "part", "score"))
    body = [[*place, spread(numbers(mine, "auroc"), digits=3)] for place, mine in places.items()]
    return markdown(["data", "sought in", "score", "AUROC"], body)
