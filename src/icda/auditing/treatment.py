"""What to do about a verdict, tried by cross-fitting before it is recommended.

A shortcut's attribute is guessed from the features alone, by heads that have not seen the sample: where there is no
shortcut, a prior over such a guess says little that a head cannot learn itself. The prior is shrunk by the evidence.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from icda.auditing.evidence import FEW, Sketch
from icda.cross_fit.pairs import DECAY, EACH, PAIR_RATIO, TWINS, quick_logits, share
from icda.cross_fit.rules import Verdict
from icda.cross_fit.twins import even_cuts, twin_logits, twin_margins
from icda.heads.cross_fit import balanced_share, belief
from icda.heads.problem import LossSettings, Problem, reweigh, with_prior

TRUST_ROUNDS = 2
MOST_STRENGTH = 0.9  # of a prior over guesses: given whole, it leaves nothing to learn where the guess is the class
Name = Literal["logit_adjustment", "shortcut_prior", "group_prior", "group_weights", "trust"]
SENTENCES = {
    "logit_adjustment": "Classes count the same, however many samples they have (logit adjustment); nothing else is done.",
    "shortcut_prior": (
        "In training the model is told which class the shortcut suggests for each sample (a prior, log P(class | "
        "suggestion)), so that it need not learn the shortcut and learns the rest. New samples are predicted without it."
    ),
    "group_prior": (
        "In training the model is told how frequent each class is in the group of the sample (a prior, log P(class | "
        "group)), so that it need not learn the group and learns the rest. New samples are predicted without that hint."
    ),
    "group_weights": "Every given group counts the same, however many samples it has.",
    "trust": (
        "A sample counts less where models that have not seen it do not believe its label: wrong labels then do less harm."
    ),
}


@dataclass(frozen=True)
class Effect:
    """What heads that have not seen the samples get right, before and after; `suspected` are those the shortcut hurts."""

    suspected: int
    suspected_before: float
    suspected_after: float
    accuracy_before: float
    accuracy_after: float

    def __str__(self) -> str:
        said = f"accuracy {self.accuracy_before:.1%} → {self.accuracy_after:.1%}"
        if self.suspected:
            hurt = f"{self.suspected_before:.1%} → {self.suspected_after:.1%}"
            said = f"{self.suspected} suspected samples {hurt}, {said}"
        return said.replace("%", "\N{NO-BREAK SPACE}%")


@dataclass(frozen=True)
class Treatment:
    """What to fit: a prior over `attributes` (N,) times `strength`, or `weights` (N,), or neither.

    As chosen, attributes are those of the sample that was asked; `icda.auditing.plan` finds those of all rows.
    """

    name: Name
    reasons: list[str]
    effect: Effect | None = None
    strength: float = 1.0
    attributes: Tensor | None = None
    weights: Tensor | None = None
    values: list[str] | None = None  # what the values of known attributes are called

    def as_dict(self) -> dict[str, Any]:
        effect = None if self.effect is None else {**vars(self.effect), "sentence": str(self.effect)}
        named = {"name": self.name, "sentence": SENTENCES[self.name], "reasons": self.reasons}
        return {**named, "strength": self.strength, "effect": effect}

    @property
    def description(self) -> str:
        """What is done and why, without what is expected of it."""
        return " ".join([SENTENCES[self.name], *self.reasons])

    def __str__(self) -> str:
        return self.description if self.effect is None else f"{self.description} Expected: {self.effect}."


def choose_treatment(sketch: Sketch, targets: Tensor, num_classes: int, verdicts: dict[str, Verdict]) -> Treatment:
    """The treatment that the verdicts call for, if the trial bears it out; else logit adjustment."""
    problem = Problem.plain(sketch.features, targets, num_classes, DECAY)
    shortcut, noise = verdicts["shortcut"], verdicts["label_noise"]
    dropped: list[str] = []
    if shortcut.answer == "yes":
        assert shortcut.chance is not None
        found = _against_shortcut(problem, min(shortcut.chance, MOST_STRENGTH))
        if found.name == "shortcut_prior":
            return found
        dropped += found.reasons
    if noise.answer == "yes":
        found = _against_noise(problem)
        if found.name == "trust":
            return replace(found, reasons=[*dropped, *found.reasons])
        dropped += found.reasons
    unsure = [kind.replace("_", " ") for kind in ("shortcut", "label_noise") if verdicts[kind].answer == "cannot tell"]
    why = "Neither a shortcut nor wrong labels were found."
    if unsure:
        why = f"These data cannot tell about {' and '.join(unsure)}: nothing is risked. A person can tell (icda ask)."
    return Treatment("logit_adjustment", dropped or [why])


def shortcut_answers(features: Tensor, targets: Tensor, num_classes: int) -> Tensor:
    """What the shortcut says of each sample (N,): the mean answer of pairs of twins, none of which has seen it.

    Twins would rather split a class that is much larger than the others: they are trained on even classes.
    """
    if num_classes == 2:
        trained = even_cuts(targets, TWINS * EACH, PAIR_RATIO, fewest=FEW)
        return (twin_margins(features, targets, TWINS * EACH, trained=trained).mean(1) > 0).long()
    trained = even_cuts(targets, TWINS, PAIR_RATIO, fewest=FEW)
    cuts: list[Tensor | None] = [None] * TWINS if trained is None else list(trained.T)
    logits = (twin_logits(features, targets, num_classes, k, trained=cuts[k]) for k in range(TWINS))
    return torch.stack([torch.softmax(each, 1) for each in logits]).mean(0).argmax(1)


def _against_shortcut(problem: Problem, strength: float) -> Treatment:
    targets = problem.targets
    assert isinstance(problem.features, Tensor)  # the sketch
    answers = shortcut_answers(problem.features, targets, problem.num_classes)
    against = answers != targets
    before = _right(problem, targets)
    after = _right(with_prior(problem, answers, strength), targets * problem.num_classes + answers)
    effect = Effect(int(against.sum()), share(before[against]), share(after[against]), share(before), share(after))
    # What others lose says nothing here: the shortcut served them, and where it is gone it will not.
    if effect.suspected_after <= effect.suspected_before:
        why = f"A hint against the shortcut was tried and dropped: samples that it misleads gain nothing ({effect})."
        return Treatment("logit_adjustment", [why])
    return Treatment("shortcut_prior", [], effect, strength, answers)


def _against_noise(problem: Problem) -> Treatment:
    weights = trusted_weights(problem)
    before, after = _right(problem, problem.targets), _right(reweigh(problem, weights), problem.targets)
    effect = Effect(0, 1.0, 1.0, share(before), share(after))
    # Rare classes are believed least: what they would lose must count as what the others gain.
    if balanced_share(after, problem.targets) <= balanced_share(before, problem.targets):
        why = (
            "Letting doubtful labels count less was tried and dropped, for it does not help "
            f"({effect}, by the labels as they are)."
        )
        return Treatment("logit_adjustment", [why])
    return Treatment("trust", ["Shares that are right are by the labels as they are, wrong ones included."], effect)


def trusted_weights(problem: Problem) -> Tensor:
    """p_y / max_c p_c of heads that have not seen the sample and that were fitted with such weights before."""
    weights = torch.ones_like(problem.weights)
    for _ in range(TRUST_ROUNDS):
        logits = quick_logits(reweigh(problem, weights), LossSettings("la"), problem.targets, 0)
        weights = belief(torch.softmax(logits, 1), problem.targets)
    return weights


def _right(problem: Problem, strata: Tensor) -> Tensor:
    return quick_logits(problem, LossSettings("la"), strata, 0).argmax(1) == problem.targets
