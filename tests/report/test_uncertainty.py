import pytest

from icda.report.intervals import bootstrap_mean, uncertainty, wilson

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
def test_each_figure_gets_the_interval_of_the_samples_it_rests_on(name: str, interval: tuple[float, float]) -> None:
    assert uncertainty(RESULT, name).interval == interval


@pytest.mark.parametrize("name", ["nll", "calibration_error", "many_accuracy"])
def test_other_figures_get_none(name: str) -> None:
    assert uncertainty(RESULT, name) is None


def test_without_sample_numbers_there_is_no_interval() -> None:
    bare = {"metrics": RESULT["metrics"]}
    assert all(uncertainty(bare, name) is None for name in RESULT["metrics"])
