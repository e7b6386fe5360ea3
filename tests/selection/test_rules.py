import json

import pytest
import torch

from icda.data.sources import FeatureArray
from icda.data.task import Split, Task
from icda.metrics import evaluate_predictions
from icda.registry import UnknownNameError
from icda.selection import SELECTION_RULES, Selector, check, get_rule

METRICS = {
    "accuracy": 0.9,
    "balanced_accuracy": 0.8,
    "worst_class_accuracy": 0.7,
    "worst_group_accuracy": 0.6,
    "worst_pseudo_group_accuracy": 0.5,
    "nll": 0.4,
}


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("validation_accuracy", 0.9),
        ("validation_balanced_accuracy", 0.8),
        ("validation_worst_class", 0.7),
        ("validation_worst_group", 0.6),
        ("validation_worst_pseudo_group", 0.5),
        ("metadata_nll", -0.4),
        ("metadata_accuracy", 0.9),
        ("last", 0.0),
    ],
)
def test_each_rule_scores_by_its_own_metric(name, score):
    assert get_rule(name).score(METRICS) == score


def test_every_rule_reads_a_metric_that_is_computed():
    found = evaluate_predictions(torch.eye(2), torch.tensor([0, 1]), groups=torch.tensor([0, 1]))
    for name in SELECTION_RULES:
        if get_rule(name).observer is None:  # the figure of an observer depends on the training
            assert isinstance(get_rule(name).score(found), float)


def test_last_and_rules_of_metadata_work_without_validation_and_only_worst_group_needs_groups():
    assert [name for name in SELECTION_RULES if not get_rule(name).needs_validation] == ["last", "metadata_nll"]
    assert [name for name in SELECTION_RULES if get_rule(name).needs_metadata] == ["metadata_nll"]
    assert [name for name in SELECTION_RULES if get_rule(name).needs_groups] == ["validation_worst_group"]


@pytest.mark.parametrize("value", [None, float("nan")])
def test_an_unknown_figure_is_an_error_not_another_figure(value):
    with pytest.raises(ValueError, match="needs 'worst_group_accuracy' of the validation split, got"):
        get_rule("validation_worst_group").score({**METRICS, "worst_group_accuracy": value})


def test_a_misspelt_rule_is_met_with_the_nearest_name():
    with pytest.raises(UnknownNameError, match="did you mean 'validation_accuracy'"):
        get_rule("validation_acuracy")


def task_with(validation=False, groups=False, metadata=False):
    split = Split(
        FeatureArray(torch.zeros(2, 3)), torch.arange(2), torch.arange(2), torch.arange(2) if groups else None
    )
    parts = (split, split if validation else None, split)
    return Task("cifar10", 2, *parts, metadata=split if metadata else None, input_kind="features", input_shape=(3,))


@pytest.mark.parametrize(
    ("rule", "lacking", "words"),
    [
        ("validation_worst_group", {}, "validation split with group labels.*--selection last"),
        ("validation_worst_group", {"validation": True}, "--selection last or --selection validation_worst_class"),
        ("validation-accuracy", {}, "'validation_accuracy' needs a validation split.*--selection last"),
        ("metadata_nll", {"validation": True}, "metadata.*--selection last"),
    ],
)
def test_a_rule_that_cannot_work_fails_before_training(rule, lacking, words):
    with pytest.raises(ValueError, match=words):
        check(rule, task_with(**lacking))
    check(rule, task_with(validation=True, groups=True, metadata=True))
    check("last", task_with())


@pytest.mark.parametrize(
    ("rule", "metric", "values", "kept", "score"),
    [
        ("validation_worst_class", "worst_class_accuracy", [0.2, 0.5, 0.4, 0.5, 0.6], [0, 1, 4], 0.6),
        ("validation_accuracy", "accuracy", [0.0, 0.0], [0], 0.0),  # a first score of zero is the best so far
        ("metadata_nll", "nll", [0.9, 0.4, 0.5, 0.4], [0, 1], -0.4),  # the lowest loss is the best
    ],
)
def test_the_best_epoch_is_kept_and_of_equals_the_earlier(rule, metric, values, kept, score):
    selector = Selector(rule)
    assert [epoch for epoch, value in enumerate(values) if selector.update(epoch, {metric: value})] == kept
    assert (selector.best_epoch, selector.best_score) == (kept[-1], score)


def test_of_equal_scores_the_more_accurate_epoch_is_kept_before_and_after_a_resume():
    """A worst class may be at 0 from the first epoch to the last."""
    epochs = [(0.0, 0.3), (0.0, 0.5), (0.0, 0.4), (0.0, 0.5), (0.1, 0.2), (0.1, 0.6)]
    selector, answers = Selector("validation_worst_class"), []
    for epoch, (worst, accuracy) in enumerate(epochs):
        resumed = Selector("validation_worst_class")
        resumed.load_state_dict(json.loads(json.dumps(selector.state_dict())))
        selector = resumed
        answers.append(selector.update(epoch, {"worst_class_accuracy": worst, "accuracy": accuracy}))
    assert answers == [True, True, False, False, True, True]


def test_last_takes_every_epoch_with_or_without_metrics():
    selector = Selector("last")
    assert [selector.update(0), selector.update(1, {"accuracy": 0.9}), selector.update(2, {"accuracy": 0.1})] == [
        True
    ] * 3
    assert selector.best_epoch == 2


@pytest.mark.parametrize("rule", list(SELECTION_RULES))
def test_a_resumed_selector_answers_like_the_uninterrupted_one(rule):
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


def test_the_state_of_another_rule_is_refused():
    with pytest.raises(ValueError, match="resume with --selection validation_accuracy"):
        Selector("last").load_state_dict(Selector("validation_accuracy").state_dict())
