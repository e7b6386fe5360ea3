"""Losses that read class statistics: ISDA, RISDA and ICDA build on this."""

import sys
import warnings
from typing import Any

from icda.errors import InputError
from icda.losses.base import AdjustedLoss
from icda.losses.batch import LossBatch
from icda.losses.inputs import Counts
from icda.statistics import ClassStatistics, CovarianceKind
from icda.statistics.checks import check_number

FULL_COVARIANCE_BYTES = 256 * 2**20
FULL_COVARIANCE_PRODUCTS = 2**30  # (C A)^2: beyond, a step takes 15 to 25 times as long as with diagonal ones
VARIANCE_BOUND = 30.0  # in logits; the largest that our tables reach in training is below


class StatisticsLoss(AdjustedLoss):
    """A loss with `ClassStatistics` inside, folded in train mode before the loss is computed (mathematics 2.4).

    The mapped variance (lambda/2) d^T Sigma d grows with the square of the head's weights: a step that is too long for
    its curvature makes the next one longer, until the loss is NaN (seen on folders of 200 images). So where it is above
    `variance_bound`, lambda is taken smaller for that sample and class (mathematics 2.5).

    Args:
        lambda0: Strength of the augmentation at the end of training: lambda = lambda0 * progress.
        covariance: "full", "diagonal" or "low_rank"; "auto" keeps full covariances while they fit in 256 MiB and take at
            most 2^30 products per step, (C A)^2, and diagonal ones beyond. It says so once, `statistics.kind` always.
        rank: Directions of each class that "low_rank" keeps.
        forgetting: What a class's old count is multiplied by at each update, in (0, 1].
        shrinkage: g in (1 - g) Sigma_c + g diag(Sigma_c), for classes with fewer samples than features.
        variance_bound: In logits; `math.inf` is the formula of the papers.
    """

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        class_counts: Counts = None,
        *,
        lambda0: float = 0.5,
        covariance: CovarianceKind | str = "auto",
        rank: int = 16,
        forgetting: float = 1.0,
        shrinkage: float = 0.0,
        variance_bound: float = VARIANCE_BOUND,
        **options: Any,
    ) -> None:
        super().__init__(num_classes, feature_dim, class_counts, **options)
        check_number(lambda0, "lambda0", type(self).__name__, 0)
        if not isinstance(variance_bound, int | float) or not variance_bound > 0:
            raise InputError(f"variance_bound must be positive (math.inf for none), got {variance_bound}.")
        self.lambda0, self.variance_bound = lambda0, variance_bound
        kind = choose_covariance(covariance, num_classes, feature_dim)
        kept = {"rank": rank, "forgetting": forgetting, "shrinkage": shrinkage}
        self.statistics = ClassStatistics(num_classes, feature_dim, kind, **kept)  # type: ignore[arg-type]

    def observe(self, batch: LossBatch) -> None:
        self.statistics.fold(batch.features, batch.targets, batch.valid)


def choose_covariance(covariance: str, num_classes: int, feature_dim: int) -> CovarianceKind:
    """Resolve "auto" by memory and time; any other name is passed on to `ClassStatistics`, which checks it.

    >>> choose_covariance("auto", num_classes=10, feature_dim=64)
    'full'
    """
    if covariance != "auto":
        return covariance  # type: ignore[return-value]
    size, products = num_classes * feature_dim**2 * 4, (num_classes * feature_dim) ** 2
    if size <= FULL_COVARIANCE_BYTES and products <= FULL_COVARIANCE_PRODUCTS:
        return "full"
    cost = (
        f"take {size / 2**30:.1f} GiB" if size > FULL_COVARIANCE_BYTES else f"cost {products / 1e9:.1f} GFLOP per step"
    )
    warnings.warn(
        f"full covariances of {num_classes} classes and {feature_dim} features would {cost}: using diagonal ones "
        "(covariance='diagonal' says so without this warning, covariance='full' keeps all).",
        stacklevel=_callers_level(),
    )
    return "diagonal"


def _callers_level() -> int:
    """The `stacklevel` of the first caller outside this package, whose line the warning should name."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("icda."):
        level, frame = level + 1, frame.f_back
    return level
