"""Keeps the best epoch so far by a selection rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from icda.errors import InputError
from icda.selection.rules import NOT_YET, SelectionRule, ValidationView, get_rule


class Selector:
    """Says after each epoch whether its model is the one to keep.

    Of epochs with equal scores the more accurate one stays, and of those the earlier: a worst class or group may be at 0
    for all of training. `last` always takes the newest. The state goes into the checkpoint, so that a resumed run
    remembers what it has to beat.

    A rule with a figure of its own has an observer; it is asked by `observe`, before `update`.

    >>> selector = Selector("validation_accuracy")
    >>> [selector.update(epoch, {"accuracy": value}) for epoch, value in enumerate([0.5, 0.7, 0.7, 0.6])]
    [True, True, False, False]
    >>> selector.best_epoch, selector.best_score
    (1, 0.7)
    """

    def __init__(self, rule: str | SelectionRule) -> None:
        self.rule = get_rule(rule)
        self.best_epoch: int | None = None
        self.best_score: float | None = None
        self.best_accuracy = 0.0
        self.observer = None if self.rule.observer is None else self.rule.observer()

    def observe(self, seen: ValidationView) -> dict[str, float | None]:
        """The figures that the rule makes of the validation split beside the common ones; none for most rules."""
        return {} if self.observer is None else self.observer.observe(seen)

    def update(self, epoch: int, metrics: Mapping[str, Any] | None = None) -> bool:
        """Whether the model of `epoch` is the best so far, by the metrics of the rule's split."""
        if not self.rule.compares:
            self.best_epoch = epoch
            return True
        if metrics is None:
            raise InputError(f"selection rule {self.rule.name!r} got no {self.rule.split} metrics for epoch {epoch}.")
        score, accuracy = self.rule.score(metrics), float(metrics.get("accuracy", 0.0))
        if self.best_score is not None and (score, accuracy) <= (self.best_score, self.best_accuracy):
            return False
        self.best_epoch, self.best_score, self.best_accuracy = epoch, score, accuracy
        return True

    def start_afresh(self) -> None:
        """Forget what there was to beat: a stage that starts again does not compete with the one before."""
        self.best_epoch = self.best_score = None

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"rule": self.rule.name, "best_epoch": self.best_epoch, "best_score": self.best_score}
        state["best_accuracy"] = self.best_accuracy
        return state if self.observer is None else {**state, **self.observer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        missing = {"rule", "best_epoch", "best_score"} - state.keys()
        if missing:
            raise InputError(f"a Selector's state has rule, best_epoch and best_score; missing: {sorted(missing)}.")
        if state["rule"] != self.rule.name:
            raise InputError(
                f"this run selects by {self.rule.name!r} but the checkpoint by {state['rule']!r}, whose scores do not "
                f"compare: resume with --selection {state['rule']}."
            )
        self.best_epoch, self.best_score = state["best_epoch"], state["best_score"]
        self.best_accuracy = state.get("best_accuracy", 0.0)
        if self.observer is not None:
            early = self.rule.name == "validation_worst_pseudo_group" and "pseudo_groups" not in state
            if early and self.best_score == -1.0:  # how 0.1.0 wrote "not known yet"
                self.best_score = NOT_YET
            self.observer.load_state_dict(state)
