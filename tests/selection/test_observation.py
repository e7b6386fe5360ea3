"""A selection rule of somebody's own that looks at more than the common metrics."""

from dataclasses import dataclass, field

import pytest

from icda.selection import SELECTION_RULES, SelectionRule
from icda.training import TrainConfig, train


@dataclass
class Confidence:
    """The mean probability of the predicted class, and a count of the epochs seen."""

    epochs: list[int] = field(default_factory=list)

    def observe(self, seen):
        self.epochs.append(seen.epoch)
        assert seen.features().shape[0] == len(seen.targets) == len(seen.logits)
        assert seen.head_weight().shape == (seen.logits.shape[1], seen.features().shape[1])
        return {"confidence": float(seen.logits.softmax(1).amax(1).mean()), "epochs_seen": float(len(self.epochs))}

    def state_dict(self):
        return {"epochs_seen": self.epochs}

    def load_state_dict(self, state):
        self.epochs = list(state["epochs_seen"])


@pytest.fixture
def rule(register_entry):
    rule = SelectionRule("confident", "confidence", description="most confident", observer=Confidence)
    return register_entry(SELECTION_RULES, rule.name, rule)


def test_its_figures_are_logged_choose_the_epoch_and_survive_a_kill(rule, tmp_path, train_for):
    settings = {
        "task": "digits_lt",
        "model": "linear",
        "method": "ce",
        "epochs": 3,
        "batch_size": 64,
        "selection": rule,
    }
    whole = train(TrainConfig(**settings, out=str(tmp_path / "whole")))
    scores = [record.validation["confidence"] for record in whole.history]
    assert all(score is not None and 0.1 < score < 1 for score in scores)
    assert whole.selected_epoch == max(range(3), key=lambda epoch: scores[epoch] or 0.0)
    stopped = TrainConfig(**settings, out=str(tmp_path / "stopped"))
    train_for(stopped, 7)
    resumed = train(stopped, resume=True)
    assert [dict(record.validation) for record in resumed.history] == [dict(r.validation) for r in whole.history]
    assert whole["history"][-1]["validation_epochs_seen"] == 3


def test_a_figure_that_an_observer_does_not_make_is_asked_for():
    rule = SelectionRule("confident", "confidence", observer=Confidence)
    assert rule.score({"confidence": None}) < rule.score({"confidence": 0.0})  # not known yet
    with pytest.raises(ValueError, match="needs 'confidence' of the validation split"):
        rule.score({"accuracy": 0.5})
