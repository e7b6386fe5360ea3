"""What a fit brought: heads judged on samples they have not seen, beside plain cross entropy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold

from icda.metrics.figures import FEWEST
from icda.report.formatting import NORMAL_95, percent, wilson

FOLDS = 5

# (X, y, new X, groups of X where they are known) -> predicted labels
Answer = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None], np.ndarray]


@dataclass(frozen=True)
class JudgedPart:
    """A class or a group: how many samples, and the share that is right."""

    name: str
    samples: int
    accuracy: float

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's, which does not shrink to a point where all or none of a few samples are right."""
        return wilson(round(self.accuracy * self.samples), self.samples) or (0.0, 1.0)

    @property
    def is_judged(self) -> bool:
        """Whether there are samples enough to say anything."""
        return self.samples >= FEWEST


@dataclass(frozen=True)
class Outcome:
    """What one way of fitting gets right; `groups` are all of them, class x attribute, none where nothing is suspected."""

    accuracy: float
    worst_class: JudgedPart
    worst_group: JudgedPart | None  # of those with samples enough
    samples: int
    groups: tuple[JudgedPart, ...] = ()

    def parts(self) -> tuple[JudgedPart, JudgedPart, JudgedPart | None]:
        return JudgedPart("all", self.samples, self.accuracy), self.worst_class, self.worst_group

    def group(self, name: str) -> JudgedPart | None:
        return next((part for part in self.groups if part.name == name), None)

    @property
    def alike(self) -> tuple[float, float, float] | None:
        """The mean over all groups, each counting alike, and its interval: how it does where the shortcut says nothing."""
        if not self.groups:
            return None
        mean = float(np.mean([part.accuracy for part in self.groups]))
        # One more right and one more wrong: three right of three would else pass for certain.
        shares = [(part.accuracy * part.samples + 1) / (part.samples + 2) for part in self.groups]
        variances = [p * (1 - p) / part.samples for p, part in zip(shares, self.groups, strict=True)]
        error = NORMAL_95 * float(np.sqrt(sum(variances))) / len(self.groups)
        return mean, max(mean - error, 0.0), min(mean + error, 1.0)


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
        return f"{self.before.name}; now {self.after.name}"

    @property
    def shares(self) -> tuple[str, str]:
        """Before and after, in per cent."""
        return "" if self.before is None else percent(self.before.accuracy), percent(self.after.accuracy)


@dataclass(frozen=True)
class Trial:
    """Plain cross entropy (`before`, None if it was not tried) beside what was chosen (`after`), on the same samples."""

    before: Outcome | None
    after: Outcome
    samples: int
    held_out: str  # in words: which samples were judged by heads that had not seen them
    are_known: bool = False  # whether the groups were given, not guessed

    def lines(self) -> list[TrialLine]:
        """Accuracy, the worst class and the worst group, known or suspected, as a table has them."""
        group = "Worst group" if self.are_known else "Worst suspected group"
        small = any(not part.is_judged for part in self.after.groups)
        names = ("Accuracy", "Worst class", f"{group} of {FEWEST} samples or more" if small else group)
        before = (None,) * 3 if self.before is None else self.before.parts()
        pairs = zip(names, before, self.after.parts(), strict=True)
        return [TrialLine(name, first, second) for name, first, second in pairs if second is not None]

    def group_lines(self) -> list[TrialLine]:
        """Every group, also those too small to judge, the one that does worst by plain training first."""
        pairs = [(None if self.before is None else self.before.group(part.name), part) for part in self.after.groups]
        pairs.sort(key=lambda pair: (not pair[1].is_judged, (pair[0] or pair[1]).accuracy, pair[1].name))
        return [TrialLine(after.name, before, after) for before, after in pairs]


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
    words = f"each of the {len(y)} samples by a model fitted to the other {folds - 1} of {folds} parts"
    return Trial(judge(answers[0], y, groups), judge(answers[1], y, groups), len(y), words)


def judge(predicted: np.ndarray, y: np.ndarray, groups: Sequence[str] | None = None) -> Outcome:
    """Accuracy, the worst class and the worst group; ties go to the larger one.

    >>> judge(np.array(["a", "a", "b"]), np.array(["a", "b", "b"])).worst_class
    JudgedPart(name='b', samples=2, accuracy=0.5)
    """
    right = predicted == y
    classes = parts(right, [str(name) for name in y])
    grouped = () if groups is None else tuple(parts(right, groups))
    judged = [part for part in grouped if part.is_judged]
    return Outcome(float(right.mean()), _worst(classes), _worst(judged) if judged else None, len(y), grouped)


def parts(right: np.ndarray, names: Sequence[str]) -> list[JudgedPart]:
    """The share of right answers of each class or group."""
    known = np.array(names, dtype=object)
    return [
        JudgedPart(str(name), int((known == name).sum()), float(right[known == name].mean()))
        for name in np.unique(known)
    ]


def _worst(known: list[JudgedPart]) -> JudgedPart:
    return min(known, key=lambda part: (part.accuracy, -part.samples))
