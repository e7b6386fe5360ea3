"""What networks say of samples that they have not learned from."""

from typing import Any, NamedTuple

from torch import Tensor

USUAL_AREA = 0.78  # what is read elsewhere, for runs from before this was asked: their limit was an area of 0.57
LEAST_AREA = 0.1  # over guessing: what is read elsewhere counts as at least that, or little over nothing would be much


class HeldOut(NamedTuple):
    """What networks say of the training samples, on the CPU.

    `logits` (N, C) are those of the network that has not learned from the sample, `targets` (N,) the samples' own labels,
    `agreement` how often two of the networks give a sample the same answer, whether they have learned from it or not.
    `unflipped` (N, C) are held-out logits of networks that learned the labels as they are, where there were any. Where
    networks were trained several times over, these are means over the repeats, and `last` (N, C) is what the networks said
    that were trained last. `running` (N, C) are logarithms of held-out probabilities averaged over epochs, and `read` is
    how well labels are read within the answers off features that never saw a label, with its standard error, and how well
    elsewhere; `mark` are the fields of a `marks.Mark`. All three where a method asks for them.
    """

    logits: Tensor
    targets: Tensor
    agreement: float
    unflipped: Tensor | None = None
    last: Tensor | None = None
    running: Tensor | None = None
    read: tuple[float, ...] | None = None
    mark: dict[str, Any] | None = None

    @property
    def answers(self) -> Tensor:
        return self.logits.argmax(1)

    @property
    def readability(self) -> float:
        """What is read of contradicted labels over what is read of others: 1 if they are as right, 0 if they are wrong."""
        area, _, elsewhere = (*(self.read or (0.5, 0.5)), USUAL_AREA)[:3]
        return min((area - 0.5) / max(elsewhere - 0.5, LEAST_AREA), 1.0)

    @property
    def errors(self) -> float:
        """The share of samples whose held-out answer is not their label."""
        return float((self.answers != self.targets).double().mean())

    @property
    def disagreement(self) -> float:
        """How many samples two networks answer differently, for each one that is answered wrongly; 0 without errors.

        Networks that answer with an attribute of the sample are wrong together, and differ nowhere: 0. Networks that are
        wrong because they have learned too little are wrong each in its own way.
        """
        return (1 - self.agreement) / self.errors if self.errors else 0.0


def averaged(earlier: HeldOut | None, now: HeldOut, count: int) -> HeldOut:
    """The mean of what `count` earlier repeats said and what the present one says, each counting the same.

    Up to a constant in each row a mean of logits is one of log probabilities. The first pass stays as it is.
    """
    if earlier is None:
        return now
    logits = (count * earlier.logits + now.logits) / (count + 1)
    agreement = (count * earlier.agreement + now.agreement) / (count + 1)
    return HeldOut(logits, now.targets, agreement, last=now.logits)
