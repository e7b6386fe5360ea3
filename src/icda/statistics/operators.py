"""What a compiled graph takes as one step: an update whose course depends on the values.

`torch.compile` follows tensors without their values. Sorting samples by label, or refusing a label, needs them, and would
break the graph. As an operator it stands in the graph unopened and runs as in eager mode. Imported while a graph is
traced, not before.
"""

from __future__ import annotations

import torch
from torch import Tensor

from icda.statistics.class_statistics import ClassStatistics


@torch.library.custom_op(
    "icda::fold",
    mutates_args=("count", "mean", "scatter", "factor"),
    schema="(Tensor(a!) count, Tensor(b!) mean, Tensor(c!) scatter, Tensor(d!)? factor, Tensor features, Tensor targets, "
    "Tensor? weights, str kind, int rank, float forgetting) -> ()",
)
def fold(
    count: Tensor,
    mean: Tensor,
    scatter: Tensor,
    factor: Tensor | None,
    features: Tensor,
    targets: Tensor,
    weights: Tensor | None,
    kind: str,
    rank: int,
    forgetting: float,
) -> None:
    """`ClassStatistics.fold` into the buffers given."""
    with torch.device("meta"):  # no memory of its own: the buffers are replaced at once
        holder = ClassStatistics(
            len(mean),
            mean.shape[1],
            kind,  # type: ignore[arg-type]
            rank=rank,
            forgetting=forgetting,
        )
    holder.count, holder.mean, holder.scatter, holder.factor = count, mean, scatter, factor
    holder.fold(features, targets, weights)
    mean.copy_(holder.mean)
    if factor is not None and holder.factor is not None:
        factor.copy_(holder.factor)


@fold.register_fake
def _(*_: object) -> None:
    return None
