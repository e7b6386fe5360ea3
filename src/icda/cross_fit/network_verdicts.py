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
from icda.cross_fit.held_out import HeldOut
from icda.cross_fit.pairs import share, trial, within_answers
from icda.cross_fit.rules import LIMITS, Limit, Limits, Verdict, answered, excess_sureness, noise_chance, tail_verdict
from icda.cross_fit.twins import LENGTH, scaled_to

READ_SAMPLES = 3000  # a standard error below 0.02 with a twentieth of the labels contradicted
# Found on digits with seeds 20 to 24 (docs/evidence/robust.md); all other limits are the audit's.
TOGETHER = Limit(0.20, 0.03)  # disagreements per error: above, the networks follow no clear function
SCATTERED = Limit(0.50, 0.05)  # above, they know too little to contradict a label
SURE = 0.5  # of the median margin of what is right: an answer with more is sure
SURE_SHARE = Limit(
    0.30, 0.04
)  # of contradictions that are sure: as good a sign as the audit's, which asks for their median
AREA = Limit(0.57, 0.02)  # readability: below, it is that of the networks' own mistakes
SHARP_AREA = 0.05  # less will do where networks agree on nearly all


class Figures(NamedTuple):
    """What the verdicts on networks rest on."""

    errors: float  # share of labels that held-out answers contradict
    against: int  # their number
    agreement: float
    disagreement: float
    sureness: float  # margin of errors, times what overlap would give
    sure_share: float  # of the contradictions, by answers that are sure
    overall: Flatness
    sided: Flatness
    skill: float
    readability: float
    readability_error: float

    @classmethod
    def of(cls, held_out: HeldOut) -> Figures:
        logits, targets = held_out.logits if held_out.running is None else held_out.running, held_out.targets
        answers, classes = logits.argmax(1), logits.shape[1]
        right, margins = answers == targets, margin_of(logits)
        overall = flatness(margins, right)
        counts = torch.bincount(targets, minlength=classes).double()
        recalls = torch.bincount(targets, right.double(), minlength=classes)[counts > 0] / counts[counts > 0]
        area, error = held_out.read or (0.5, 0.5)
        return cls(
            errors=held_out.errors,
            against=int((held_out.answers != targets).sum()),
            agreement=held_out.agreement,
            disagreement=held_out.disagreement,
            sureness=excess_sureness(overall.error_sureness, overall.errors),
            sure_share=share(is_sure(held_out.logits, targets)[held_out.answers != targets]),
            overall=overall,
            sided=flattest_side(overall, margins, answers, right),
            skill=(float(recalls.mean()) - 1 / classes) / (1 - 1 / classes),
            readability=area,
            readability_error=error,
        )


def is_sure(logits: Tensor, targets: Tensor) -> Tensor:
    """Whether the margin (N,) is at least half of the median of what is right."""
    margins, right = margin_of(logits), logits.argmax(1) == targets
    return margins >= SURE * margins[right].median() if right.any() else torch.ones_like(right)


def read_labels(features: Tensor, targets: Tensor, logits: Tensor, seed: int) -> tuple[float, float]:
    """How well heads on features (n, A), given the networks' answers as a prior, tell labels within one answer.

    Asked where the held-out logits (n, C) are sure: an unsure answer that is wrong is the network's own mistake, and of
    such a sample the label can always be read.
    """
    answers, sure = logits.argmax(1), is_sure(logits, targets)
    _, treated = trial(scaled_to(features.float(), LENGTH), targets, answers, logits.shape[1], seed)
    return within_answers(treated[sure], targets[sure], answers[sure])


def judge_networks(held_out: HeldOut, limits: Limits = LIMITS) -> dict[str, Verdict]:
    """A verdict on a shortcut, on wrong labels and on a long tail."""
    found = Figures.of(held_out)
    sharp = limits.sharp_agreement.chance(found.agreement)
    shortcut = _shortcut_chance(found, sharp, limits)
    # Networks that agree on all but one in four hundred may have found a shortcut that hides what is left of the class.
    # And labels that can be read where networks contradict them are not wrong: the networks are.
    unlike = 1 - max(shortcut, 0.5 * sharp, _read_chance(found, 0.0, limits))
    noise = noise_chance(found.skill, found.overall, found.sided, limits) * unlike
    noise *= 1 - SCATTERED.chance(found.disagreement)
    shared = (
        f"Networks that have not seen a sample contradict {_per_cent(found.errors)} of the labels, {found.sureness:.1f} "
        f"times as surely as overlap would; two of them disagree on {found.disagreement:.2f} samples for each."
    )
    read = (
        f"Where they contradict it, the label can be read with an AUROC of {found.readability:.2f} "
        f"± {found.readability_error:.2f} (a shortcut: above {AREA.at}; wrong labels: near 0.5)."
    )
    flat = (
        f"Errors have a margin of {found.overall.error_sureness:.2f} of what is right, and are "
        f"{found.overall.sure_errors:.2f} times as frequent among the surest (wrong labels: near 1 and 1)."
    )
    counts = torch.bincount(held_out.targets, minlength=held_out.logits.shape[1])
    return {
        "shortcut": answered(shortcut, [shared, read]),
        "label_noise": answered(noise, [shared, flat, read]),
        "long_tail": tail_verdict(counts[counts > 0].tolist()),
    }


def _shortcut_chance(found: Figures, sharp: float, limits: Limits) -> float:
    chance = (
        max(limits.sureness.chance(found.sureness), SURE_SHARE.chance(found.sure_share))
        * limits.agreement.chance(found.agreement)
        * (1 - TOGETHER.chance(found.disagreement))
        * (1 - limits.contradicted.chance(found.errors))
        * _read_chance(found, sharp, limits)
    )
    return chance if chance <= 0.5 else 0.5 + (chance - 0.5) * limits.counted.chance(found.against)


def _read_chance(found: Figures, sharp: float, limits: Limits) -> float:
    """The chance that labels can be read where networks contradict them; less will do where these agree on nearly all."""
    surely = (found.readability - 0.5) / max(found.readability_error, 1e-12)
    sure_enough = limits.noisy_read.chance(surely + limits.sharp_bonus * sharp)
    return sure_enough * AREA.chance(found.readability + SHARP_AREA * sharp)


def _per_cent(share: float) -> str:
    return f"{100 * share:.1f} %"
