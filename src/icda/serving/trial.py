"""What a fit brought: heads judged on samples they have not seen, beside plain cross entropy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold

FOLDS = 5
FEWEST = 5  # samples below which a group's share of right answers says nothing

# (X, y, new X, groups of X where they are known) -> predicted labels
Answer = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None], np.ndarray]


@dataclass(frozen=True)
class JudgedPart:
    """A class or a group: how many samples, and the share that is right."""

    name: str
    samples: int
    accuracy: float


@dataclass(frozen=True)
class Outcome:
    """What one way of fitting gets right; the worst group is None where there are no suspects."""

    accuracy: float
    worst_class: JudgedPart
    worst_group: JudgedPart | None
    samples: int

    def parts(self) -> tuple[JudgedPart, JudgedPart, JudgedPart | None]:
        return JudgedPart("all", self.samples, self.accuracy), self.worst_class, self.worst_group


class TrialLine(NamedTuple):
    """One figure before and after; without a comparison there is no before."""

    name: str
    before: JudgedPart | None
    after: JudgedPart

    @property
    def which(self) -> str:
        """The part it is about; the worst one may be another afterwards."""
        if self.before is None or self.before.name == self.after.name:
            return self.after.name
        return f"{self.before.name} → {self.after.name}"


@dataclass(frozen=True)
class Trial:
    """Plain cross entropy (`before`, None if it was not tried) beside what was chosen (`after`), on the same samples."""

    before: Outcome | None
    after: Outcome
    samples: int
    held_out: str  # in words: which samples were judged by heads that had not seen them
    are_known: bool = False  # whether the groups were given, not guessed

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[TrialLine]:
        """Accuracy, the worst class and the worst group, known or suspected, as a table has them."""
        names = ("Accuracy", "Worst class", "Worst group" if self.are_known else "Worst suspected group")
        before = (None,) * 3 if self.before is None else self.before.parts()
        pairs = zip(names, before, self.after.parts(), strict=True)
        return [TrialLine(name, first, second) for name, first, second in pairs if second is not None]


def cross_validate(
    before: Answer,
    after: Answer,
    X: np.ndarray,
    y: np.ndarray,
    groups: Sequence[str] | None,
    seed: int,
    known: np.ndarray | None = None,
) -> Trial:
    """Both ways, each sample answered by heads fitted to four fifths of the others; `known` are groups to fit with.

    What a way chooses, such as a treatment, it chooses again each time: the sample has no part in that either.
    """
    folds = min(FOLDS, int(np.unique(y, return_counts=True)[1].min()))
    answers = [np.empty_like(y), np.empty_like(y)]
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(X, y):
        for answered, way in zip(answers, (before, after), strict=True):
            answered[test] = way(X[train], y[train], X[test], None if known is None else known[train])
    words = f"each of the {len(y)} samples by a head that was fitted to the other {folds - 1} of {folds} parts"
    return Trial(judge(answers[0], y, groups), judge(answers[1], y, groups), len(y), words)


def judge(predicted: np.ndarray, y: np.ndarray, groups: Sequence[str] | None = None) -> Outcome:
    """Accuracy, the worst class and the worst group; ties go to the larger one.

    >>> judge(np.array(["a", "a", "b"]), np.array(["a", "b", "b"])).worst_class
    JudgedPart(name='b', samples=2, accuracy=0.5)
    """
    right = predicted == y
    classes = parts(right, [str(name) for name in y])
    grouped = [] if groups is None else [part for part in parts(right, groups) if part.samples >= FEWEST]
    return Outcome(float(right.mean()), _worst(classes), _worst(grouped) if grouped else None, len(y))


def parts(right: np.ndarray, names: Sequence[str]) -> list[JudgedPart]:
    """The share of right answers of each class or group."""
    known = np.array(names, dtype=object)
    return [
        JudgedPart(str(name), int((known == name).sum()), float(right[known == name].mean()))
        for name in np.unique(known)
    ]


def _worst(known: list[JudgedPart]) -> JudgedPart:
    return min(known, key=lambda part: (part.accuracy, -part.samples))
