"""Class means and covariances as variables of a meta step: taken apart, put together again, and kept for good."""

from dataclasses import replace

import torch
from torch import Tensor

from icda.statistics import ClassStatistics, Moments


def normalised(moments: Moments) -> list[Tensor]:
    """The mean and the parts of Sigma with the scale multiplied in: what a meta step corrects."""
    if moments.kind == "full":
        return [moments.mean, moments.covariance()]
    parts = [moments.mean, moments.scatter * moments.scale[:, None]]
    return parts if moments.factor is None else [*parts, moments.factor * moments.scale.sqrt()[:, None, None]]


def with_values(moments: Moments, values: list[Tensor]) -> Moments:
    """Moments made of other `normalised` parts."""
    mean, scatter, *factor = values
    return Moments(moments.kind, mean, scatter, torch.ones_like(moments.scale), factor[0] if factor else None)


def symmetrised(moments: Moments) -> Moments:
    """The same with symmetric covariances; P reads Sigma as if it were."""
    if moments.kind != "full":
        return moments
    return replace(moments, scatter=0.5 * (moments.scatter + moments.scatter.mT))


@torch.no_grad()
def assign(statistics: ClassStatistics, moments: Moments) -> None:
    """Take other means and symmetric covariances over, keeping the counts; they become positive semidefinite."""
    mean, scatter, *factor = normalised(moments)
    count = statistics.count.to(scatter)
    if statistics.kind == "full":
        values, vectors = torch.linalg.eigh(scatter)
        scatter = vectors * values.clamp(min=0)[:, None, :] @ vectors.mT
        statistics.scatter.copy_(scatter * count[:, None, None])
    else:
        variances = scatter.clamp(min=0)
        if statistics.factor is not None:
            statistics.factor = factor[0] * count.sqrt()[:, None, None]
            variances = variances + factor[0].square().sum(1)  # the running state keeps whole variances
        statistics.scatter.copy_(variances * count[:, None])
    statistics.mean = mean.clone()
