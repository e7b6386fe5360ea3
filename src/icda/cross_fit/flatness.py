"""How flat errors lie over the margin of a prediction: near 1 and 1 for wrong labels, small where classes overlap."""

from dataclasses import dataclass

from torch import Tensor

from icda.cross_fit.pairs import ratio_of_medians, share

SIDE_SAMPLES, SIDE_ERRORS = 20, 5  # predictions as one class, and errors among them, from which they are looked at
SIDE_SHRINKAGE = 40  # errors of one class's predictions that count as much as all others
SURE_SHARE = 0.3  # the surest predictions, among which noise leaves as many errors as elsewhere


@dataclass(frozen=True)
class Flatness:
    """How flat errors lie over the margin: near 1 and 1 for wrong labels, small for overlap; and their share."""

    error_sureness: float
    sure_errors: float
    errors: float


def flatness(margins: Tensor, right: Tensor) -> Flatness:
    """Of predictions with these margins (N,), of which some are right.

    >>> import torch
    >>> flatness(torch.tensor([4.0, 4.0, 4.0, 4.0]), torch.tensor([True, True, False, True])).sure_errors
    1.0
    """
    surest = margins >= margins.quantile(1 - SURE_SHARE)
    rarest = 1 / len(right)
    sureness = ratio_of_medians(margins[~right], margins[right])
    return Flatness(sureness, share(~right[surest]) / max(share(~right), rarest), share(~right))


def flattest_side(overall: Flatness, margins: Tensor, predicted: Tensor, right: Tensor) -> Flatness:
    """Of the predictions as one class: those whose errors lie flattest, drawn to `overall` where errors are few.

    Where one class's labels are given to another only, the errors of one prediction are sure and all others are overlap.
    """
    best = overall
    for k in predicted.unique():
        of_class = predicted == k
        wrong = int((of_class & ~right).sum())
        if int(of_class.sum()) < SIDE_SAMPLES or wrong < SIDE_ERRORS:
            continue
        side, own = flatness(margins[of_class], right[of_class]), wrong / (wrong + SIDE_SHRINKAGE)
        drawn = Flatness(
            own * side.error_sureness + (1 - own) * overall.error_sureness,
            own * side.sure_errors + (1 - own) * overall.sure_errors,
            side.errors,
        )
        if drawn.error_sureness + drawn.sure_errors > best.error_sureness + best.sure_errors:
            best = drawn
    return best


def margin_of(logits: Tensor) -> Tensor:
    """How far the likeliest class is ahead of the next.

    >>> import torch
    >>> margin_of(torch.tensor([[3.0, 1.0, 0.0]])).tolist()
    [2.0]
    """
    best = logits.topk(2, dim=1).values
    return best[:, 0] - best[:, 1]
