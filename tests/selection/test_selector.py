import json

import pytest

from icda.selection import SELECTION_RULES, Selector


@pytest.mark.parametrize(
    ("rule", "metric", "values", "kept", "score"),
    [
        ("validation_worst_class", "worst_class_accuracy", [0.2, 0.5, 0.4, 0.5, 0.6], [0, 1, 4], 0.6),
        ("validation_accuracy", "accuracy", [0.0, 0.0], [0], 0.0),  # a first score of zero is the best so far
        ("metadata_nll", "nll", [0.9, 0.4, 0.5, 0.4], [0, 1], -0.4),  # the lowest loss is the best
    ],
)
def test_the_best_epoch_is_kept_and_of_equals_the_earlier(
    rule: str, metric: str, values: list[float], kept: list[int], score: float
) -> None:
    selector = Selector(rule)
    assert [epoch for epoch, value in enumerate(values) if selector.update(epoch, {metric: value})] == kept
    assert (selector.best_epoch, selector.best_score) == (kept[-1], score)


def test_of_equal_scores_the_more_accurate_epoch_is_kept_before_and_after_a_resume() -> None:
    """A worst class may be at 0 from the first epoch to the last."""
    epochs = [(0.0, 0.3), (0.0, 0.5), (0.0, 0.4), (0.0, 0.5), (0.1, 0.2), (0.1, 0.6)]
    selector, answers = Selector("validation_worst_class"), []
    for epoch, (worst, accuracy) in enumerate(epochs):
        resumed = Selector("validation_worst_class")
        resumed.load_state_dict(json.loads(json.dumps(selector.state_dict())))
        selector = resumed
        answers.append(selector.update(epoch, {"worst_class_accuracy": worst, "accuracy": accuracy}))
    assert answers == [True, True, False, False, True, True]


def test_last_takes_every_epoch_with_or_without_metrics() -> None:
    selector = Selector("last")
    assert [selector.update(0), selector.update(1, {"accuracy": 0.9}), selector.update(2, {"accuracy": 0.1})] == [
        True
    ] * 3
    assert selector.best_epoch == 2


@pytest.mark.parametrize("rule", list(SELECTION_RULES))
def test_a_resumed_selector_answers_like_the_uninterrupted_one(rule: str) -> None:
    metric = Selector(rule).rule.metric or "accuracy"
    values = [{metric: value} for value in (0.3, 0.7, 0.6, 0.7, 0.8)]
    whole, first = Selector(rule), Selector(rule)
    expected = [whole.update(epoch, value) for epoch, value in enumerate(values)]
    answers = [first.update(epoch, value) for epoch, value in enumerate(values[:2])]
    second = Selector(rule)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    answers += [second.update(epoch, value) for epoch, value in enumerate(values[2:], start=2)]
    assert answers == expected
    assert second.state_dict() == whole.state_dict()


def test_the_state_of_another_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="resume with --selection validation_accuracy"):
        Selector("last").load_state_dict(Selector("validation_accuracy").state_dict())
