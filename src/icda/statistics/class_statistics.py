"""Online class means and covariances: mergeable, saved with the model, synchronised across ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, get_args

import numpy as np
import torch
from torch import Tensor, nn

from icda.errors import InputError, InputTypeError
from icda.functional.grouping import LabelGroups, on_host
from icda.functional.moments import CovarianceKind, Moments
from icda.ranks import all_reduce, world_size
from icda.statistics import checks
from icda.statistics.checks import check_number

ALL_CLASSES = 4096  # up to so many, ranks add up all of them instead of asking which are present


class KeepsPrecision(nn.Module):
    """A module whose floating-point buffers never fall below float64, or below what `least_precision` says by name.

    Half precision cannot count past 2048. Values come from before a cast: widening them afterwards would not bring lost
    digits back.
    """

    least_precision: ClassVar[dict[str, torch.dtype]] = {}

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        before = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        super()._apply(fn, recurse)
        for name, old in before.items():
            new, floor = self._buffers[name], self.least_precision.get(name, torch.float64)
            if new is None or not new.is_floating_point() or torch.promote_types(new.dtype, floor) == new.dtype:
                continue
            self._buffers[name] = new.to(floor) if old.is_meta else old.to(new.device, floor)
        return self


class ClassStatistics(KeepsPrecision):
    """Mean and covariance of the features of every class, updated batch by batch.

    The state is the triple (n, mean, M2) per class with Sigma = M2 / n; a batch is merged by Chan's formula
    (mathematics 2.2), which is stable in float32 where sums of squares are not. Everything is a buffer, so it is saved
    with the checkpoint; when `torch.distributed` is initialised each update sees the batches of all ranks. Buffers never
    fall below float32, whatever the model is cast to.

    Reference: appendix A of arXiv 2304.13431, after ISDA (Wang et al., NeurIPS 2019).

    Args:
        num_classes: Number of classes C.
        feature_dim: Number of features A.
        covariance: "full" (C, A, A), "diagonal" (C, A), or "low_rank": exact variances and the `rank` strongest
            directions of each class.
        rank: Directions that "low_rank" keeps.
        forgetting: What a class's old count is multiplied by before each merge, in (0, 1], because features drift.
        shrinkage: g in (1 - g) Sigma_c + g diag(Sigma_c), for classes with fewer samples than dimensions.
        validate: Whether `update` looks at values, which takes one read from the device.

    >>> statistics = ClassStatistics(num_classes=2, feature_dim=1, covariance="diagonal")
    >>> statistics.update(torch.tensor([[0.0], [2.0], [5.0]]), torch.tensor([0, 0, 1]))
    >>> statistics.mean.flatten().tolist(), statistics.covariance.flatten().tolist(), statistics.count.tolist()
    ([1.0, 5.0], [1.0, 0.0], [2.0, 1.0])
    """

    count: Tensor
    mean: Tensor
    scatter: Tensor
    factor: Tensor | None
    least_precision: ClassVar = dict.fromkeys(("mean", "scatter", "factor"), torch.float32)

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        covariance: CovarianceKind = "full",
        *,
        rank: int = 16,
        forgetting: float = 1.0,
        shrinkage: float = 0.0,
        validate: bool = True,
    ) -> None:
        super().__init__()
        owner = "ClassStatistics"
        checks.check_sizes(num_classes, feature_dim, owner)
        check_number(rank, "rank", owner, 1, whole=True)
        check_number(forgetting, "forgetting", owner, 1e-12, 1)
        check_number(shrinkage, "shrinkage", owner, 0, 1)
        if covariance not in get_args(CovarianceKind):
            raise InputError(f"covariance must be one of {', '.join(get_args(CovarianceKind))}, got {covariance!r}.")
        self.kind: CovarianceKind = covariance
        self.num_classes, self.feature_dim, self.rank = num_classes, feature_dim, min(rank, feature_dim)
        self.forgetting, self.shrinkage, self.validate = forgetting, shrinkage, validate
        square = (feature_dim,) * (2 if covariance == "full" else 1)
        self.register_buffer("count", torch.zeros(num_classes, dtype=torch.float64))  # float32 saturates at 2^24
        self.register_buffer("mean", torch.zeros(num_classes, feature_dim))
        self.register_buffer("scatter", torch.zeros(num_classes, *square))
        factor = torch.zeros(num_classes, self.rank, feature_dim) if covariance == "low_rank" else None
        self.register_buffer("factor", factor)

    @property
    def covariance(self) -> Tensor:
        """Sigma of every class: (C, A) when diagonal, else (C, A, A); zero for a class not seen."""
        return self.moments().covariance()

    def update(self, features: Tensor, targets: Tensor, weights: Tensor | None = None) -> None:
        """Fold a batch in; one that is refused changes nothing.

        Args:
            features: (N, A).
            targets: Labels (N,).
            weights: (N,), which let a sample count more than once, or not at all.
        """
        owner, device = "ClassStatistics", self.mean.device
        checks.check_features(features, self.feature_dim, owner, device)
        targets = checks.check_labels(targets, "targets", len(features), owner, device)
        if weights is not None:
            if isinstance(weights, Tensor) and not weights.is_complex():  # counts may be whole numbers
                weights = weights.to(self.mean.dtype)
            checks.check_float(weights, "weights", owner, device, (len(targets),))
        if self.validate:
            mass = targets.new_ones(1) if weights is None else weights
            largest, low, high, least, most = checks.read_once(
                checks.magnitude(features), *torch.aminmax(targets), *torch.aminmax(mass)
            )
            checks.check_within(low, high, self.num_classes, owner, "label", f"{self.num_classes} classes")
            checks.check_magnitude(largest, features, owner, self.mean.dtype)
            if not 0 <= least <= most < checks.most_allowed(self.mean.dtype) ** 0.1:
                raise InputError(f"{owner} expects weights that are finite, not negative and below 3000.")
        self.fold(features, targets, weights)

    @torch.no_grad()
    def fold(self, features: Tensor, targets: Tensor, weights: Tensor | None = None, *, in_place: bool = False) -> None:
        """`update` for a caller that has checked its arguments, without a read from the device.

        `in_place` spares a copy of all means, for a caller whose graphs hold rows of them and not the whole.
        """
        if torch.compiler.is_compiling():
            from icda.statistics.operators import fold_compiled  # registers operators, which only a graph needs

            fold_compiled(self, features.detach(), targets, weights)
            return
        with torch.autocast(features.device.type, enabled=False):
            features = features.detach().to(self.mean.dtype)
            rows, places = self._rows(targets)
            number = self.num_classes if isinstance(rows, slice) else len(rows)
            groups, mass = LabelGroups.of(places, number), None if weights is None else weights.detach().to(features)
            sums = features.new_zeros(number, self.feature_dim + 1)  # in one tensor: ranks add it up in one message
            sums[:, :-1] = groups.sums(features if mass is None else features * mass[:, None])
            sums[:, -1].index_add_(0, places, torch.ones_like(features[:, 0]) if mass is None else mass)
            added = all_reduce(sums)[:, -1].double()
            mean = sums[:, :-1] / sums[:, -1:].clamp(min=torch.finfo(sums.dtype).tiny)
            residuals = mean[places].sub_(features)  # whose sign nobody asks for
            if mass is not None:
                residuals.mul_(mass.sqrt()[:, None])
            # Only a class that is seen forgets.
            kept = torch.where(added > 0, torch.full_like(added, self.forgetting), 1)
            share, spread, squares = self._blend(self.count[rows] * kept, added, mean, self.mean[rows])
            if self.factor is not None:
                from icda.statistics.low_rank import fold_factor

                fold_factor(self, groups, rows, residuals, spread, kept, in_place)
            self._fold_scatter(groups, rows, residuals, spread, squares, kept)
            # New tensors, where we may not do it in place: a graph built before may still hold the old means.
            moved = torch.lerp(self.mean[rows], mean, share[:, None].to(mean))
            if isinstance(rows, slice) and not in_place:
                self.mean = moved
            else:
                self.mean = self.mean if in_place else self.mean.clone()
                self.mean[rows] = moved
            self.count[rows] = self.count[rows] * kept + added

    @torch.no_grad()
    def merge(self, other: ClassStatistics) -> ClassStatistics:
        """Fold in statistics gathered elsewhere; exact and associative for full and diagonal covariances.

        >>> left, right = (ClassStatistics(2, 1, "diagonal") for _ in range(2))
        >>> left.update(torch.tensor([[0.0]]), torch.tensor([0]))
        >>> right.update(torch.tensor([[2.0]]), torch.tensor([0]))
        >>> left.merge(right).covariance[0].item()
        1.0
        """
        if not isinstance(other, ClassStatistics):
            raise InputTypeError(f"only ClassStatistics can be merged, got {type(other).__name__}.")
        mine, theirs = ((part.kind, part.num_classes, part.feature_dim, part.rank) for part in (self, other))
        if mine != theirs:
            raise InputError(f"cannot merge statistics of (kind, C, A, rank) {theirs} into {mine}.")
        mean, scatter, count = other.mean.to(self.mean), other.scatter.to(self.scatter), other.count.to(self.count)
        share, spread, squares = self._blend(self.count, count, mean, self.mean)
        outer = spread[:, :, None] * spread[:, None] if self.kind == "full" else squares
        merged = {
            "scatter": self.scatter + scatter + outer,
            "mean": self.mean + share[:, None].to(mean) * (mean - self.mean),
            "count": self.count + count,
        }
        if self.factor is not None and other.factor is not None:
            from icda.statistics.low_rank import compress

            stacked = torch.cat([self.factor, other.factor.to(self.factor), spread[:, None]], 1)
            merged["factor"] = compress(stacked, self.rank)
        if not all(torch.isfinite(value).all() for value in merged.values()):
            raise InputError("the merged statistics would be NaN or infinite: nothing was merged.")
        for name, value in merged.items():
            setattr(self, name, value)
        return self

    def moments(self, classes: Tensor | None = None) -> Moments:
        """What the losses read, of all classes or of those given, in that order.

        Of all, `scatter` is shared with the running state unless shrinkage is on; of some, everything is a copy.
        """
        rows = slice(None) if classes is None else classes
        count, mean, scatter = self.count[rows], self.mean[rows], self.scatter[rows]
        factor = None if self.factor is None else self.factor[rows]
        scale = torch.where(count > 0, 1 / count, 0).to(mean.dtype)
        few = None if self.shrinkage == 0 else self.shrinkage * (count < self.feature_dim).to(scatter)
        if factor is not None:
            if few is not None:
                factor = factor * (1 - few).sqrt()[:, None, None]
            # Exact variances minus what the factor explains: rounding must not make a variance negative.
            scatter = (scatter - factor.square().sum(1)).clamp(min=0)
        elif few is not None and self.kind == "full":
            diagonal = torch.diag_embed(scatter.diagonal(dim1=1, dim2=2))
            scatter = torch.lerp(scatter, diagonal, few[:, None, None])
        return Moments(self.kind, mean, scatter, scale, factor)

    def reset(self) -> None:
        """Forget everything seen so far."""
        for name, buffer in self.named_buffers():
            setattr(self, name, torch.zeros_like(buffer))

    def extra_repr(self) -> str:
        return f"num_classes={self.num_classes}, feature_dim={self.feature_dim}, covariance={self.kind!r}"

    def _rows(self, targets: Tensor) -> tuple[Any, Tensor]:
        """The classes to touch, and each sample's place among them: all, or, where that is wasteful, those present."""
        few = 2 * len(targets) if world_size() == 1 else ALL_CLASSES  # which all ranks agree on
        if self.factor is None and (self.num_classes <= few or on_host(targets) is None):
            return slice(None), targets
        present = torch.zeros(self.num_classes, dtype=torch.int64, device=targets.device)
        present[targets] = 1
        classes = torch.from_numpy(np.flatnonzero(all_reduce(present).cpu())).to(targets.device)
        return classes, torch.searchsorted(classes, targets)

    def _blend(self, count: Tensor, added: Tensor, mean: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The share m / (n + m) of what is added, sqrt(n m / (n + m)) (mean - before), and the squares of that."""
        share, delta = torch.where(added > 0, added / (count + added), 0), mean - before
        shared = (share * count).to(mean)[:, None]
        return share, shared.sqrt() * delta, shared * delta.square()

    def _fold_scatter(
        self, groups: LabelGroups, rows: Any, residuals: Tensor, spread: Tensor, squares: Tensor, kept: Tensor
    ) -> None:
        alone = world_size() == 1 and self.forgetting == 1 and isinstance(rows, slice)
        if self.kind == "full" and alone and groups.fits:
            padded = torch.cat([groups.padded(residuals), spread[:, None]], 1)
            self.scatter.baddbmm_(padded.mT, padded)  # adds exactly nothing to a class without samples
            return
        if self.kind == "full":
            batch = all_reduce(groups.products(residuals, residuals)).baddbmm_(spread[:, :, None], spread[:, None])
        else:
            batch = all_reduce(groups.sums(residuals.square_())).add_(squares)
        if alone:
            self.scatter += batch
        else:
            shape = (-1, *(1,) * (batch.dim() - 1))
            self.scatter[rows] = batch.addcmul_(self.scatter[rows], kept.to(batch).view(shape))
