import json

import pytest

from icda.selection import SELECTION_RULES, Selector


def test_the_best_epoch_is_kept_and_of_equals_the_earlier() -> None:
    selector = Selector("validation_worst_class")
    values = [0.2, 0.5, 0.4, 0.5, 0.6]
    answers = [selector.update(epoch, {"worst_class_accuracy": value}) for epoch, value in enumerate(values)]
    assert answers == [True, True, False, False, True]
    assert (selector.best_epoch, selector.best_score) == (4, 0.6)


def test_a_first_score_of_zero_is_still_the_best_so_far() -> None:
    selector = Selector("validation_accuracy")
    assert selector.update(0, {"accuracy": 0.0})
    assert not selector.update(1, {"accuracy": 0.0})


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


def test_another_rules_state_is_refused() -> None:
    state = Selector("validation_accuracy").state_dict()
    with pytest.raises(ValueError, match="resume with --selection validation_accuracy"):
        Selector("last").load_state_dict(state)


def test_a_state_with_other_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="missing: \\['best_epoch', 'best_score'\\]"):
        Selector("last").load_state_dict({"rule": "last", "best_val_acc": 0.5})


def test_a_rule_that_needs_validation_refuses_to_go_without() -> None:
    with pytest.raises(ValueError, match="got no validation metrics for epoch 3"):
        Selector("validation_accuracy").update(3, None)


def test_a_rule_of_metadata_keeps_the_epoch_of_the_lowest_loss_there() -> None:
    selector = Selector("metadata_nll")
    losses = (0.9, 0.4, 0.5, 0.4)
    assert [selector.update(k, {"nll": loss, "accuracy": 0.5}) for k, loss in enumerate(losses)] == [
        True,
        True,
        False,
        False,
    ]
    with pytest.raises(ValueError, match="got no metadata metrics for epoch 4"):
        selector.update(4, None)
