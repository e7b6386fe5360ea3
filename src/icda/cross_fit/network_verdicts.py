"""Shortcut, wrong labels or neither, by what cross-fitted networks say: the audit's rules (`rules`), applied to networks.

Networks that contradict labels together, and surely, have found either the truth behind wrong labels or a shortcut. What
tells the two apart is whether the label can still be read where they contradict it: off features that have never seen a
label, by heads that are given the networks' answer as a prior. Labels that are wrong by their class alone cannot be read.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from icda.cross_fit.flatness import Flatness, flatness, flattest_side, margin_of
from icda.cross_fit.marks import Mark
from icda.cross_fit.networks import HeldOut
from icda.cross_fit.pairs import share, skill, trial, within_answers
from icda.cross_fit.rules import (
    LIMITS,
    NO,
    YES,
    Limit,
    Verdict,
    answered,
    excess_sureness,
    noise_chance,
    per_cent,
    tail_verdict,
)
from icda.cross_fit.twins import LENGTH, scaled_to

READ_SAMPLES = 3000  # a standard error below 0.02 with a twentieth of the labels contradicted
# Found on digits with seeds 20 to 24 (docs/evidence/robust.md); all other limits are the audit's.
TOGETHER = Limit(0.20, 0.03)  # disagreements per error: above, the networks follow no clear function
SCATTERED = Limit(0.50, 0.05)  # above, they know too little to contradict a label
GUESSED = Limit(1.0, 0.05)  # errors over those of the largest class as the one answer: above, the networks know less
SURE = 0.5  # of the median margin of what is right: an answer with more is sure
SURE_SHARE = Limit(0.30, 0.04)  # of contradictions that are sure: as good a sign as the audit's, which is their median
# Of contradicted labels, what can be read of them over what the same heads read of others: that many of them are right.
READ = Limit(0.25, 0.05)
OWN_MISTAKES = 0.23  # more is needed where many labels are contradicted: most of that are the networks' own mistakes
SHARP_READ = 0.15  # less will do where networks agree on nearly all


# A part of the picture. Found on digits with seeds 20 to 24, and on subsets of the classes of digits, MNIST and CIFAR-10 as
# they are, in which none may be seen.
TELLS = Limit(0.74, 0.04)  # its skill over that of the whole: in natural pictures of ten classes at most two thirds
OVERLAP = Limit(0.60, 0.03)  # above, it errs where two classes look alike; natural pairs of classes begin at 0.66
PER_CLASS = 0.02  # more overlap is allowed for each class: the more there are, the less a part tells of its own
KEPT = Limit(0.65, 0.08)  # below, what the part contradicts is not a sample like others of its class
SOME = Limit(5, 1.5)  # samples contradicted: with fewer there is nothing to be seen at all
FOLLOWED = Limit(0.12, 0.03)  # of what it contradicts, answered likewise by the networks: else they see past it
# With so many classes, a part that tells most of them, and nearly as well as the whole, is a mark even among wrong labels.
MANY, MOST, NEARLY_ALL = Limit(8, 1), Limit(0.45, 0.05), Limit(0.88, 0.03)


class Figures(NamedTuple):
    """What the verdicts on networks rest on."""

    errors: float  # share of labels that held-out answers contradict
    guessed: float  # over what would be contradicted by the largest class as the one answer
    against: int  # their number
    agreement: float
    disagreement: float
    sureness: float  # margin of errors, times what overlap would give
    sure_share: float  # of the contradictions, by answers that are sure
    overall: Flatness
    sided: Flatness
    skill: float
    area: float  # AUROC by which contradicted labels are read
    area_error: float
    readability: float  # over that of labels that are not contradicted, both from guessing

    @classmethod
    def of(cls, held_out: HeldOut) -> Figures:
        logits, targets = held_out.logits if held_out.running is None else held_out.running, held_out.targets
        answers = logits.argmax(1)
        right, margins = answers == targets, margin_of(logits)
        overall = flatness(margins, right)
        area, error = (held_out.read or (0.5, 0.5))[:2]
        return cls(
            errors=held_out.errors,
            guessed=held_out.errors / max(1 - float(torch.bincount(targets).max()) / len(targets), 1e-12),
            against=int((held_out.answers != targets).sum()),
            agreement=held_out.agreement,
            disagreement=held_out.disagreement,
            sureness=excess_sureness(overall.error_sureness, overall.errors),
            sure_share=share(is_sure(held_out.logits, targets)[held_out.answers != targets]),
            overall=overall,
            sided=flattest_side(overall, margins, answers, right),
            skill=skill(answers, targets, logits.shape[1]),
            area=area,
            area_error=error,
            readability=held_out.readability,
        )


def is_sure(logits: Tensor, targets: Tensor) -> Tensor:
    """Whether the margin (N,) is at least half of the median of what is right."""
    margins, right = margin_of(logits), logits.argmax(1) == targets
    return margins >= SURE * margins[right].median() if right.any() else torch.ones_like(right)


def read_labels(features: Tensor, targets: Tensor, logits: Tensor, seed: int) -> tuple[float, float, float]:
    """How well heads on features (n, A), given the networks' answers as a prior, tell labels within one answer.

    An AUROC, its standard error, and the AUROC of the same heads on labels that the networks confirm. Asked where the
    held-out logits (n, C) are sure: an unsure answer that is wrong is the network's own mistake, and of such a sample the
    label can always be read.
    """
    answers, sure = logits.argmax(1), is_sure(logits, targets)
    features = features.float()
    features = (features - features.mean(0)) / features.std(0, correction=0).clamp(min=1e-6)
    _, treated = trial(scaled_to(features, LENGTH), targets, answers, logits.shape[1], seed)
    asked = treated[sure], targets[sure], answers[sure]
    return *within_answers(*asked), within_answers(*asked, confirmed=True)[0]


def judge_networks(held_out: HeldOut) -> dict[str, Verdict]:
    """A verdict on a shortcut, on wrong labels and on a long tail."""
    found = Figures.of(held_out)
    sharp = LIMITS.sharp_agreement.chance(found.agreement)
    shortcut = _shortcut_chance(found, sharp)
    by_mark = mark_chance(held_out)
    # Networks that agree on all but one in four hundred may have found a shortcut that hides what is left of the class.
    # And labels that can be read where networks contradict them are not wrong: the networks are.
    apart = by_mark if held_out.mark and is_independent(Mark(**held_out.mark)) else 0.0
    unlike = 1 - max(shortcut, apart, 0.5 * sharp, _read_chance(found, 0.0))
    noise = noise_chance(found.skill, found.overall, found.sided) * unlike
    noise *= (1 - SCATTERED.chance(found.disagreement)) * (1 - GUESSED.chance(found.guessed))
    shared = (
        f"Networks that have not seen a sample contradict {per_cent(found.errors)} of the labels, {found.sureness:.1f} "
        f"times as surely as overlap would; two of them disagree on {found.disagreement:.2f} samples for each."
    )
    read = (
        f"Where they contradict it, the label can be read with an AUROC of {found.area:.2f} ± {found.area_error:.2f}, "
        f"{per_cent(found.readability)} of what is read elsewhere (a shortcut: most of it; wrong labels: near 0)."
    )
    flat = (
        f"Errors have a margin of {found.overall.error_sureness:.2f} of what is right, and are "
        f"{found.overall.sure_errors:.2f} times as frequent among the surest (wrong labels: near 1 and 1)."
    )
    counts = torch.bincount(held_out.targets, minlength=held_out.logits.shape[1])
    return {
        "shortcut": answered(
            max(shortcut, by_mark),
            [shared, read, *([Mark(**held_out.mark).sentence] if held_out.mark and by_mark > NO else [])],
        ),
        "label_noise": answered(noise, [shared, flat, read]),
        "long_tail": tail_verdict(counts[counts > 0].tolist()),
    }


def _shortcut_chance(found: Figures, sharp: float) -> float:
    chance = (
        max(LIMITS.sureness.chance(found.sureness), SURE_SHARE.chance(found.sure_share))
        * LIMITS.agreement.chance(found.agreement)
        * (1 - TOGETHER.chance(found.disagreement))
        * (1 - LIMITS.contradicted.chance(found.errors))
        * (1 - GUESSED.chance(found.guessed))
        * _read_chance(found, sharp)
    )
    return _counted(chance, found.against)


def seen_mark(held_out: HeldOut) -> Mark | None:
    """The part of the picture that tells the class, if it is a shortcut that the networks' answers do not show."""
    if held_out.mark is None or mark_chance(held_out) < YES:
        return None
    found = Figures.of(held_out)
    is_followed = _shortcut_chance(found, LIMITS.sharp_agreement.chance(found.agreement)) >= YES
    return None if is_followed else Mark(**held_out.mark)


def is_independent(mark: Mark) -> bool:
    """Whether the rest of the picture still tells the class where the part contradicts it: else it may be the class."""
    return mark.kept >= KEPT.at


def mark_chance(held_out: HeldOut) -> float:
    """The chance that the part of the picture that tells the class best is a mark."""
    if held_out.mark is None:
        return 0.0
    mark, answers = Mark(**held_out.mark), (held_out.logits if held_out.running is None else held_out.running).argmax(1)
    against = mark.answers != held_out.targets
    told = mark.skill / max(mark.known, skill(answers, held_out.targets, mark.classes), 1e-12)
    many = MANY.chance(mark.classes)
    allowed = Limit(OVERLAP.at + PER_CLASS * min(mark.classes - 2, 8), OVERLAP.width)
    is_like_others = KEPT.chance(mark.kept) * (1 - LIMITS.contradicted.chance(mark.errors))
    is_followed = FOLLOWED.chance(share(answers[against] == mark.answers[against]))
    chance = (
        TELLS.chance(told)
        * (1 - allowed.chance(mark.overlap))
        * max(is_like_others, many * MOST.chance(mark.skill) * NEARLY_ALL.chance(told))
        * max(is_followed, many)
        * SOME.chance(mark.against)
    )
    return _counted(chance, mark.against)


def _counted(chance: float, against: int) -> float:
    """Few contradictions are an anecdote, of which nothing can be told."""
    return chance if chance <= 0.5 else 0.5 + (chance - 0.5) * LIMITS.counted.chance(against)


def _read_chance(found: Figures, sharp: float) -> float:
    """The chance that labels can be read where networks contradict them; less will do where these agree on nearly all."""
    surely = (found.area - 0.5) / max(found.area_error, 1e-12)
    sure_enough = LIMITS.noisy_read.chance(surely + LIMITS.sharp_bonus * sharp)
    needed = OWN_MISTAKES * LIMITS.contradicted.chance(found.errors)
    return sure_enough * READ.chance(found.readability - needed + SHARP_READ * sharp)
