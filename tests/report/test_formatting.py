import math

import numpy as np
import pytest
import torch

from icda.metrics import evaluate_predictions
from icda.metrics.registry import OWN_METRICS
from icda.report.formatting import bootstrap_mean, duration, mean_and_deviation, metric_text, uncertainty, wilson


def test_every_metric_that_is_one_number_has_a_wording():
    found = evaluate_predictions(torch.eye(2), torch.tensor([0, 1]))
    assert set(found) - {"per_class_accuracy", "per_group_accuracy"} == set(OWN_METRICS)
    assert all(metric.label and metric.meaning for metric in OWN_METRICS.values())


def test_unmeasured_figures_are_blank():
    assert metric_text("accuracy", None) == metric_text("nll", None) == duration(None) == ""
    assert mean_and_deviation("accuracy", None, None) == ""


def test_a_duration_never_has_sixty_of_anything():
    assert duration(119.7) == "2 min 0 s"
    assert duration(3599.9) == "1 h 0 min"
    assert duration(59.99) == "1 min 0 s"


@pytest.mark.parametrize(("right", "samples"), [(0, 10), (3, 10), (10, 10), (812, 1000)])
def test_wilsons_ends_are_the_shares_that_would_just_be_rejected(right, samples):
    low, high = wilson(right, samples)
    observed = right / samples
    for end in (low, high):
        if 0 < end < 1:
            deviation = math.sqrt(end * (1 - end) / samples)
            assert abs(observed - end) / deviation == pytest.approx(1.959964, rel=1e-6)
    assert 0 <= low <= observed <= high <= 1


def test_the_bootstrap_agrees_with_the_normal_law_for_large_classes():
    shares, samples = [0.9, 0.5, 0.7], [4000, 2000, 3000]
    error = math.sqrt(sum(p * (1 - p) / n for p, n in zip(shares, samples, strict=True))) / 3
    low, high = bootstrap_mean(shares, samples)
    assert low == pytest.approx(np.mean(shares) - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(np.mean(shares) + 1.96 * error, abs=0.15 * error)
    assert bootstrap_mean(shares, samples) == (low, high)


RESULT = {
    "metrics": {
        "accuracy": 0.75,
        "balanced_accuracy": 0.7,
        "worst_class_accuracy": 0.5,
        "worst_group_accuracy": 0.25,
        "average_group_accuracy": 0.5,
        "nll": 0.4,
        "per_class_accuracy": [0.9, 0.5],
        "per_group_accuracy": {"a": 0.75, "b": 0.25, "c": None},
    },
    "confusion": [[9, 1], [3, 3]],
    "group_samples": [8, 4, 0],
}


@pytest.mark.parametrize(
    ("name", "interval"),
    [
        ("accuracy", wilson(12, 16)),
        ("worst_class_accuracy", wilson(3, 6)),
        ("worst_group_accuracy", wilson(1, 4)),
        ("balanced_accuracy", bootstrap_mean([0.9, 0.5], [10, 6])),
        ("average_group_accuracy", bootstrap_mean([0.75, 0.25], [8, 4])),
    ],
)
def test_each_figure_gets_the_interval_of_the_samples_it_rests_on(name, interval):
    assert uncertainty(RESULT, name).interval == interval
    assert uncertainty({"metrics": RESULT["metrics"]}, name) is None, "nobody said how many samples it rests on"


def test_other_figures_and_no_samples_get_none():
    assert all(uncertainty(RESULT, name) is None for name in ("nll", "calibration_error", "many_accuracy"))
    assert wilson(0, 0) is bootstrap_mean([], []) is bootstrap_mean([0.5], [0]) is bootstrap_mean([0.5], [1, 2]) is None
