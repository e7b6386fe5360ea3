"""Named rules for picking a checkpoint, and what keeps the best epoch by one. None of them sees test data."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torch import Tensor

from icda.data.task import Task
from icda.errors import InputError
from icda.metrics import METRICS
from icda.registry import Registry

NOT_YET = -math.inf  # the score of an epoch whose figure an observer cannot know yet: any other is better


@dataclass(frozen=True)
class ValidationView:
    """The validation split as the model of an epoch sees it. What is a function is computed when called.

    `answers` are those of biased networks that a method trains beside its own: None where there are none, or none yet; then
    `answers_later` says whether to wait for them.
    """

    epoch: int
    num_epochs: int
    metrics: Mapping[str, Any]  # of `icda.metrics.evaluate_predictions`
    logits: Tensor  # (N, C)
    targets: Tensor  # (N,)
    features: Callable[[], Tensor]  # (N, A)
    head_weight: Callable[[], Tensor]  # (C, A)
    answers: Callable[[], Tensor | None] = lambda: None  # (N,)
    answers_later: bool = False


class Observer(Protocol):
    """Makes a rule's own figures from the validation split. One training has one observer, saved with its checkpoints."""

    def observe(self, seen: ValidationView) -> dict[str, float | None]:
        """Figures by name, for the rule to score and the log to keep; None for one that cannot be known yet."""

    def state_dict(self) -> dict[str, Any]:
        """What a resumed training must remember, as tensors and plain data; names other than the Selector's own."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a state; it holds the Selector's entries, too."""


@dataclass(frozen=True)
class SelectionRule:
    """Which figure makes one epoch's model better than another's, of the validation split or of the metadata.

    `metric` is a name from `icda.metrics.evaluate_predictions`, or one that the rule's `observer` makes of the validation
    split; without one the newest model is taken.

    >>> rule = SelectionRule("validation_accuracy", metric="accuracy")
    >>> rule.score({"accuracy": 0.75}), rule.needs_validation, rule.needs_groups
    (0.75, True, False)
    """

    name: str
    metric: str | None = None
    needs_groups: bool = False
    description: str = ""
    higher_is_better: bool = True
    observer: Callable[[], Observer] | None = None  # called once for each training
    split: Literal["validation", "metadata"] = "validation"  # whose figure it is

    @property
    def compares(self) -> bool:
        """Whether epochs are compared; if not, the newest is kept."""
        return self.metric is not None

    @property
    def needs_validation(self) -> bool:
        return self.compares and self.split == "validation"

    @property
    def needs_metadata(self) -> bool:
        return self.compares and self.split == "metadata"

    def score(self, metrics: Mapping[str, Any]) -> float:
        """How good a model with these metrics of the split is, more being better; 0 for a rule that compares nothing."""
        if self.metric is None:
            return 0.0
        value = metrics.get(self.metric)
        if value is None and self.observer is not None and self.metric in metrics:
            return NOT_YET
        if value is None or not math.isfinite(value):
            raise InputError(
                f"selection rule {self.name!r} needs {self.metric!r} of the {self.split} split, got {value}: "
                "evaluate it with what the metric needs, or use --selection last."
            )
        return float(value) if self.higher_is_better else -float(value)


SELECTION_RULES: Registry[SelectionRule] = Registry(
    "selection rule", "icda.selection", "icda.selection_rules", SelectionRule
)

for _rule in (
    SelectionRule("last", description="the model of the last epoch"),
    SelectionRule("validation_accuracy", "accuracy", description="highest accuracy on validation data"),
    SelectionRule(
        "validation_balanced_accuracy", "balanced_accuracy", description="highest mean of the classes' accuracies"
    ),
    SelectionRule("validation_worst_class", "worst_class_accuracy", description="highest accuracy of the worst class"),
    SelectionRule(
        "validation_worst_group",
        "worst_group_accuracy",
        needs_groups=True,
        description="highest accuracy of the worst group; needs group labels on validation data",
    ),
    SelectionRule(
        "metadata_nll",
        "nll",
        higher_is_better=False,
        description="lowest loss on metadata, which no network is fitted to",
        split="metadata",
    ),
):
    SELECTION_RULES.register(_rule.name)(_rule)


def get_rule(rule: str | SelectionRule) -> SelectionRule:
    """The rule behind a name; a rule stands for itself.

    `validation_METRIC` and `metadata_METRIC` stand for the best of any metric on these splits.

    >>> get_rule("validation-worst-class").metric
    'worst_class_accuracy'
    >>> get_rule("validation_nll").score({"nll": 0.5})
    -0.5
    """
    if isinstance(rule, SelectionRule):
        return rule
    prefix, _, name = rule.lower().replace("-", "_").partition("_")
    if rule in SELECTION_RULES or prefix not in ("validation", "metadata") or name not in METRICS:
        return SELECTION_RULES.get(rule)
    metric = METRICS.get(name)
    return SelectionRule(
        f"{prefix}_{metric.name}",
        metric.name,
        metric.needs_groups,
        higher_is_better=metric.higher_is_better,
        split="metadata" if prefix == "metadata" else "validation",
    )


def check(rule: str | SelectionRule, task: Task) -> None:
    """Raise before training when the task cannot give the rule what it needs."""
    rule = get_rule(rule)
    split = task.metadata if rule.needs_metadata else task.validation
    if not rule.compares or (split is not None and (split.groups is not None or not rule.needs_groups)):
        return
    needed = f"{rule.split} split{' with group labels' if rule.needs_groups else ''}"
    instead = "last" if split is None else "last or --selection validation_worst_class"
    raise InputError(
        f"selection rule {rule.name!r} needs a {needed}; task {task.name!r} has none: use --selection {instead}."
    )


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
        assert metrics is not None, f"{self.rule.name} compares the {self.rule.split} metrics of epoch {epoch}"
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
        if state["rule"] != self.rule.name:
            raise InputError(
                f"this run selects by {self.rule.name!r} but the checkpoint by {state['rule']!r}, whose scores do not "
                f"compare: resume with --selection {state['rule']}."
            )
        self.best_epoch, self.best_score = state["best_epoch"], state["best_score"]
        self.best_accuracy = state.get("best_accuracy", 0.0)
        if self.observer is not None:
            self.observer.load_state_dict(state)
