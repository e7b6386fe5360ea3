"""How widely a class is spread across the boundary between two classes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from icda.functional.moments import Moments

CLASS_LIMIT = 100  # beyond, the boundaries between so many evenly spaced classes stand for all


class MappedVariances(NamedTuple):
    """Mean mapped variance of classes on the boundaries they belong to, and on those between two other classes.

    `unrelated` is None with two classes, whose one boundary belongs to both.
    """

    own: float
    unrelated: float | None


@torch.no_grad()
def mean_mapped_variances(weight: Tensor, moments: Moments, class_limit: int = CLASS_LIMIT) -> MappedVariances:
    """The two figures that the paper follows over training; classes without samples are left out.

    With more than `class_limit` classes only as many, evenly spaced, are looked at: the whole table has C^3 entries.

    >>> moments = Moments("diagonal", torch.zeros(2, 1), torch.tensor([[1.0], [3.0]]), torch.ones(2))
    >>> mean_mapped_variances(torch.tensor([[0.0], [2.0]]), moments)
    MappedVariances(own=8.0, unrelated=None)
    """
    seen = (moments.scale > 0).nonzero().flatten()
    if len(seen) > class_limit:
        seen = seen[torch.linspace(0, len(seen) - 1, class_limit, device=seen.device).round().long()]
    moments, weight = moments.to(weight.dtype), weight[seen]
    own, unrelated = [], []
    count = len(seen)
    for place, label in enumerate(seen.tolist()):
        table = mapped_variances(weight, moments, label)
        touching = table[place].sum()
        own.append(touching / max(count - 1, 1))
        # The table holds each boundary twice and zeros on its diagonal.
        unrelated.append((table.sum() / 2 - touching) / max((count - 1) * (count - 2) / 2, 1))
    mean_own = float(torch.stack(own).mean()) if own else 0.0
    return MappedVariances(mean_own, float(torch.stack(unrelated).mean()) if count > 2 else None)


def mapped_variances(weight: Tensor, moments: Moments, label: int) -> Tensor:
    """(w_c - w_y)^T Sigma_j (w_c - w_y) at [y, c] (C, C) for the class j: S_cc + S_yy - 2 S_yc with S = W Sigma_j W^T.

    It is the variance of the logit difference z_c - z_y over the samples of class j, that is the spread of class j
    along the normal of the boundary between y and c; never negative.

    Reference: section 5 of arXiv 2304.13431, the proof below table 1.
    """
    scatter = moments.scatter[label]
    if moments.kind == "full":
        products = weight @ scatter @ weight.T
    else:
        products = (weight * scatter) @ weight.T
        if moments.factor is not None:
            projected = weight @ moments.factor[label].T
            products = products + projected @ projected.T
    squares = products.diagonal()
    table = squares[None, :] + squares[:, None] - products - products.T
    return (table * moments.scale[label]).clamp(min=0)
