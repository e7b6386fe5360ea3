"""An update of class statistics as one step of a compiled graph (`icda.functional.operators` says why)."""

from __future__ import annotations

import torch
from torch import Tensor

from icda.statistics.class_statistics import ClassStatistics


def fold_compiled(statistics: ClassStatistics, features: Tensor, targets: Tensor, weights: Tensor | None) -> None:
    state = statistics.count, statistics.mean, statistics.scatter, statistics.factor
    fold(*state, features, targets, weights, statistics.kind, statistics.rank, statistics.forgetting)


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
        holder = ClassStatistics(len(mean), mean.shape[1], kind, rank=rank, forgetting=forgetting)  # type: ignore[arg-type]
    holder.count, holder.mean, holder.scatter, holder.factor = count, mean, scatter, factor
    holder.fold(features, targets, weights, in_place=True)


@fold.register_fake
def _(*_: object) -> None:
    return None
