"""A search chooses on validation data alone, and goes on where it stopped."""

from dataclasses import replace

import pytest

pytest.importorskip("optuna")

from icda.data import create_task
from icda.registry import UnknownNameError
from icda.training import TrainConfig, load_config, train, tuning
from icda.training.tuning import apply_values, check_task, parse_space, tune, validation_score

SPACE = parse_space(["lambda0=0.1:1", "learning_rate=0.01:0.3:log"])


@pytest.fixture
def config(tmp_path):
    return TrainConfig(task="digits_lt", method="icda", model="linear", epochs=1, out=str(tmp_path / "search"))


def quiet(_): ...


def test_three_trials_give_the_best_of_them_as_a_configuration_to_train(config):
    said = []
    found = tune(config, SPACE, 3, say=said.append)
    scores = [float(line.rsplit(" ", 1)[1]) for line in said]
    assert len(scores) == 3
    assert found.score == pytest.approx(max(scores), abs=1e-4)
    assert 0.1 <= found.values["lambda0"] <= 1
    assert 0.01 <= found.values["learning_rate"] <= 0.3
    best = load_config(config.folder() / "best.yaml")
    assert best.learning_rate == found.values["learning_rate"]
    assert best.options == {"lambda0": found.values["lambda0"]}


def test_the_score_is_the_selected_models_accuracy_on_the_validation_split(config, tmp_path):
    score = validation_score(config, "accuracy")
    result = train(replace(config, out=str(tmp_path / "plain")))
    assert score == result["history"][-1]["validation_accuracy"]


def test_the_test_split_is_out_of_reach_while_searching(config, monkeypatch):
    seen = []

    class Watched(tuning.Trainer):
        def run(self, resume=False):
            seen.append(self.task)
            super().run(resume)

    monkeypatch.setattr(tuning, "Trainer", Watched)
    validation_score(config, "accuracy")
    test = set(create_task("digits_lt").test.rows.tolist())
    (task,) = seen
    for split in task.splits().values():
        assert not test & set(split.rows.tolist())


def test_a_search_goes_on_with_what_an_unbroken_one_would_propose(config, tmp_path):
    whole, parts = [], []
    tune(config, SPACE, 3, say=whole.append)
    again = replace(config, out=str(tmp_path / "again"))
    for trials in (1, 3, 3):
        tune(again, SPACE, trials, say=lambda text: parts.append(text.replace("of 1:", "of 3:")))
    assert parts == whole


def test_the_trial_a_killed_search_was_at_is_taken_up_again(config, monkeypatch):
    asked = []

    def killed(proposed, metric):
        asked.append(proposed)
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "validation_score", killed)
    with pytest.raises(KeyboardInterrupt):
        tune(config, SPACE, 1, say=quiet)
    monkeypatch.setattr(tuning, "validation_score", lambda proposed, metric: asked.append(proposed) or 0.5)
    tune(config, SPACE, 1, say=quiet)
    assert len(asked) == 2
    assert asked[0] == asked[1]


def test_a_trial_that_is_refused_is_given_up_and_the_search_goes_on(config, monkeypatch):
    scores = iter([None, 0.25])

    def sometimes(proposed, metric):
        score = next(scores)
        if score is None:
            raise ValueError("lambda0 is not to my taste")
        return score

    monkeypatch.setattr(tuning, "validation_score", sometimes)
    said = []
    assert tune(config, SPACE, 2, say=said.append).score == 0.25
    assert "given up, lambda0 is not to my taste" in said[0]


def test_a_search_in_which_nothing_succeeds_says_why(config, monkeypatch):
    def refused(proposed, metric):
        raise ValueError("no")

    monkeypatch.setattr(tuning, "validation_score", refused)
    with pytest.raises(RuntimeError, match="none of 1 trials succeeded; the last: given up, no"):
        tune(config, SPACE, 1, say=quiet)


def test_a_task_without_validation_data_is_refused(config, monkeypatch):
    bare = replace(create_task("digits_lt"), validation=None)
    monkeypatch.setattr(tuning, "load_task", lambda _: bare)
    with pytest.raises(ValueError, match="no validation split, and test data must not choose"):
        tune(config, SPACE, 1, say=quiet)


def test_a_group_metric_needs_groups(config):
    with pytest.raises(ValueError, match="needs groups"):
        check_task(config, "worst_group_accuracy")


def test_attributes_said_to_be_unknown_are_withheld_from_a_search(config):
    untold = replace(config, task="digits_coloured", attributes="unknown")
    with pytest.raises(ValueError, match="metric 'worst_group_accuracy' needs groups"):
        check_task(untold, "worst_group_accuracy")
    with pytest.raises(ValueError, match="needs a validation split with group labels"):
        check_task(replace(untold, selection="validation_worst_group"), "accuracy")
    check_task(replace(untold, attributes="known"), "worst_group_accuracy")


def test_a_method_that_learns_from_the_validation_split_is_refused(config):
    with pytest.raises(ValueError, match="'dfr' learns from the validation split"):
        check_task(replace(config, task="digits_coloured", method="dfr", epochs=2), "accuracy")


def test_a_name_that_nobody_knows_is_refused_before_anything_is_trained(config):
    with pytest.raises(UnknownNameError, match="did you mean 'lambda0'"):
        tune(config, parse_space(["lambda=0:1"]), 1, say=quiet)
    assert not config.folder().exists()


def test_settings_and_options_go_where_they_belong():
    config = TrainConfig(options={"beta": 0.2})
    changed = apply_values(config, {"learning_rate": 0.5, "lambda0": 0.1}, "x")
    assert (changed.learning_rate, changed.options, changed.out) == (0.5, {"beta": 0.2, "lambda0": 0.1}, "x")
