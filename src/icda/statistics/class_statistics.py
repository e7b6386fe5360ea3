"""Online class means and covariances: mergeable, saved with the model, synchronised across ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import torch
from torch import Tensor, nn

from icda.errors import InputError, InputTypeError
from icda.ranks import all_gather_rows, all_reduce, world_size
from icda.statistics.checks import (
    ORDINARY,
    check_device,
    check_feature_dim,
    check_features,
    check_num_classes,
    check_targets,
    check_weights,
    check_whole_number,
)
from icda.statistics.grouping import LabelGroups
from icda.statistics.low_rank import compress
from icda.statistics.moments import CovarianceKind, Moments
from icda.statistics.precision import keep_precision
from icda.statistics.rollback import Rollback, holds_only_finite_values


class ClassStatistics(nn.Module):
    """Mean and covariance of the features of every class, updated batch by batch.

    The state is the triple (n, mean, M2) per class with Sigma = M2 / n; a batch is merged by Chan's formula
    (mathematics 2.2), which is stable in float32 where sums of squares are not. Only rows of classes in the batch are
    touched. Everything is a buffer, so it is saved with the checkpoint; when `torch.distributed` is initialised each
    update sees the batches of all ranks. Buffers never fall below float32, whatever the model is cast to.

    * `covariance="low_rank"` keeps exact variances and the `rank` strongest directions of each class.
    * `forgetting` < 1 scales a class's old count before each merge, because features drift during training.
    * `shrinkage` g replaces Sigma_c by (1-g) Sigma_c + g diag(Sigma_c) for classes with fewer samples than dimensions.

    Reference: appendix A of arXiv 2304.13431, after ISDA (Wang et al., NeurIPS 2019).

    >>> statistics = ClassStatistics(num_classes=2, feature_dim=1, covariance="diagonal")
    >>> statistics.update(torch.tensor([[0.0], [2.0], [5.0]]), torch.tensor([0, 0, 1]))
    >>> statistics.mean.flatten().tolist(), statistics.covariance.flatten().tolist(), statistics.count.tolist()
    ([1.0, 5.0], [1.0, 0.0], [2.0, 1.0])
    """

    count: Tensor
    mean: Tensor
    scatter: Tensor
    factor: Tensor | None

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        covariance: CovarianceKind = "full",
        *,
        rank: int = 16,
        forgetting: float = 1.0,
        shrinkage: float = 0.0,
    ) -> None:
        super().__init__()
        check_num_classes(num_classes, "ClassStatistics")
        check_feature_dim(feature_dim, "ClassStatistics")
        check_whole_number(rank, "rank", "ClassStatistics")
        if covariance not in get_args(CovarianceKind):
            raise InputError(f"covariance must be one of {', '.join(get_args(CovarianceKind))}, got {covariance!r}.")
        if rank < 1:
            raise InputError(f"rank must be at least 1, got {rank}.")
        if not 0 < forgetting <= 1 or not 0 <= shrinkage <= 1:
            raise InputError(f"forgetting must lie in (0, 1] and shrinkage in [0, 1], got {forgetting}, {shrinkage}.")
        self.kind: CovarianceKind = covariance
        self.num_classes, self.feature_dim = num_classes, feature_dim
        self.rank = min(rank, feature_dim)
        self.forgetting, self.shrinkage = forgetting, shrinkage
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

    @torch.no_grad()
    def update(self, features: Tensor, targets: Tensor, weights: Tensor | None = None) -> None:
        """Fold a batch in. `weights` (N,) lets a sample count more than once, or not at all.

        A batch that is refused, because of its type, its shape or its values, changes nothing.
        """
        owner = "ClassStatistics"
        is_ordinary = check_features(features, self.feature_dim, owner)
        targets = check_targets(targets, len(features), self.num_classes, owner)
        check_device(features, "statistics", self.mean.device, owner)
        check_device(targets, "targets", features.device, owner)
        if weights is not None:
            check_weights(weights, len(features), owner)
            check_device(weights, "weights", features.device, owner)
            is_ordinary = is_ordinary and float(weights.max()) < ORDINARY
        if is_ordinary:
            self.fold(features, targets, weights)
        else:
            self._fold_or_refuse(features, targets, weights)

    def _fold_or_refuse(self, features: Tensor, targets: Tensor, weights: Tensor | None) -> None:
        """`fold` for values whose squares may be too large for the precision of the state."""
        before = Rollback(self)
        self.fold(features, targets, weights)
        if not holds_only_finite_values(self):
            before.restore()
            raise InputError(
                f"ClassStatistics got features or weights up to {float(features.abs().max()):.3g}, whose squares overflow "
                f"{self.scatter.dtype}. Nothing was updated: scale the features, or use statistics.double()."
            )

    @torch.no_grad()
    def fold(self, features: Tensor, targets: Tensor, weights: Tensor | None = None, *, in_place: bool = False) -> None:
        """`update` for a caller that has checked its arguments.

        `in_place` spares a copy of all means, for a caller whose graphs hold rows of them and not the whole.
        """
        with torch.autocast(features.device.type, enabled=False):
            features = features.detach().to(self.mean.dtype)
            mass = torch.ones_like(features[:, 0]) if weights is None else weights.detach().to(features)
            groups, places = self._classes_present(targets)
            sums = groups.sums(torch.cat([features * mass[:, None], mass[:, None]], 1))
            all_reduce(sums)
            total = sums[:, -1]
            batch_mean = sums[:, :-1] / total.clamp(min=torch.finfo(total.dtype).tiny)[:, None]
            residuals = (features - batch_mean[places]) * mass.sqrt()[:, None]
            self._merge_batch(groups, total.double(), batch_mean, residuals, in_place)

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
        mine = (self.kind, self.num_classes, self.feature_dim, self.rank)
        theirs = (other.kind, other.num_classes, other.feature_dim, other.rank)
        if mine != theirs:
            raise InputError(f"cannot merge statistics of (kind, C, A, rank) {theirs} into {mine}.")
        before = Rollback(self)
        mean, scatter = other.mean.to(self.mean), other.scatter.to(self.scatter)
        weight, delta = self._blend(self.count, other.count.to(self.count), mean)
        shared = (weight * self.count).to(delta)[:, None]  # n m / (n + m)
        spread = shared.sqrt() * delta
        if self.factor is not None and other.factor is not None:
            stacked = torch.cat([self.factor, other.factor.to(self.factor), spread[:, None]], 1)
            self.factor = compress(stacked, self.rank)
        outer = shared * delta.square() if self.kind != "full" else spread[:, :, None] * spread[:, None]
        self.scatter += scatter + outer
        self.mean = self.mean + weight.to(delta)[:, None] * delta
        self.count += other.count.to(self.count)
        if not holds_only_finite_values(self):
            before.restore()
            raise InputError("the merged statistics would be NaN or infinite: nothing was merged.")
        return self

    def moments(self, classes: Tensor | None = None) -> Moments:
        """What the losses read, of all classes or of those given, in that order.

        Of all, `scatter` is shared with the running state unless shrinkage is on; of some, everything is a copy.
        """
        rows = slice(None) if classes is None else classes
        count, mean, scatter = self.count[rows], self.mean[rows], self.scatter[rows]
        factor = None if self.factor is None else self.factor[rows]
        scale = torch.where(count > 0, 1 / count, 0).to(mean.dtype)
        few = self.shrinkage * (count < self.feature_dim).to(scatter)
        if factor is not None:
            if self.shrinkage > 0:
                factor = factor * (1 - few).sqrt()[:, None, None]
            # Exact variances minus what the factor explains: rounding must not make a variance negative.
            scatter = (scatter - factor.square().sum(1)).clamp(min=0)
        elif self.shrinkage > 0 and self.kind == "full":
            diagonal = torch.diag_embed(scatter.diagonal(dim1=1, dim2=2))
            scatter = torch.lerp(scatter, diagonal, few[:, None, None])
        return Moments(self.kind, mean, scatter, scale, factor)

    @torch.no_grad()
    def assign(self, moments: Moments) -> None:
        """Take other means and covariances over, keeping the counts; covariances become positive semidefinite."""
        if moments.kind != self.kind:
            raise InputError(f"cannot take {moments.kind} moments over into {self.kind} statistics.")
        mean, scatter, *factor = moments.symmetrised().normalised()
        count = self.count.to(scatter)
        if self.kind == "full":
            values, vectors = torch.linalg.eigh(scatter)
            scatter = vectors * values.clamp(min=0)[:, None, :] @ vectors.mT
            self.scatter.copy_(scatter * count[:, None, None])
        else:
            variances = scatter.clamp(min=0)
            if self.factor is not None:
                self.factor = factor[0] * count.sqrt()[:, None, None]
                variances = variances + factor[0].square().sum(1)  # the running state keeps whole variances
            self.scatter.copy_(variances * count[:, None])
        self.mean = mean.clone()

    def reset(self) -> None:
        """Forget everything seen so far."""
        for name, buffer in self.named_buffers():
            setattr(self, name, torch.zeros_like(buffer))

    def extra_repr(self) -> str:
        return f"num_classes={self.num_classes}, feature_dim={self.feature_dim}, covariance={self.kind!r}"

    def _classes_present(self, targets: Tensor) -> tuple[LabelGroups, Tensor]:
        """This rank's samples by class, over the classes any rank holds, and each sample's place among those."""
        # All classes at once where that is little more work; not where a class without samples would change all the same.
        touches_all = self.forgetting < 1 or self.factor is not None
        if world_size() == 1 and self.num_classes <= 2 * len(targets) and not touches_all:
            return LabelGroups.of_all(targets, self.num_classes), targets
        present = torch.zeros(self.num_classes, dtype=torch.int64, device=targets.device)
        present[targets] = 1
        all_reduce(present)
        classes = present.nonzero().flatten()
        places = torch.searchsorted(classes, targets)
        return LabelGroups.from_places(classes, places), places

    def _blend(
        self, count: Tensor, added: Tensor, mean: Tensor, rows: Tensor | slice = slice(None)
    ) -> tuple[Tensor, Tensor]:
        total = count + added
        weight = torch.where(total > 0, added / total, 0)
        return weight, mean - self.mean[rows]

    def _merge_batch(self, groups: LabelGroups, added: Tensor, mean: Tensor, residuals: Tensor, in_place: bool) -> None:
        classes = groups.labels
        whole = len(classes) == self.num_classes
        where = slice(None) if whole else classes  # a slice reads without copying
        count = self.count[where] * self.forgetting
        weight, delta = self._blend(count, added, mean, where)
        shared = (weight * count).to(delta)[:, None]  # n m / (n + m)
        spread = shared.sqrt() * delta
        if self.factor is not None:
            self._merge_factor(groups, residuals, spread, in_place)
        self._merge_scatter(groups, where, residuals, spread, shared * delta.square())
        # New tensors, where we may not do it in place: a graph built before may still hold the old means (and factors).
        moved = self.mean[where] + weight.to(delta)[:, None] * delta
        if in_place:
            self.mean[where] = moved
        else:
            self.mean = moved if whole else self.mean.index_copy(0, classes, moved)
        self.count[where] = count + added

    def _merge_scatter(
        self, groups: LabelGroups, where: Tensor | slice, residuals: Tensor, spread: Tensor, squares: Tensor
    ) -> None:
        whole = isinstance(where, slice)
        if self.kind == "full" and whole and world_size() == 1 and self.forgetting == 1 and not groups.wasteful:
            rows = torch.cat([groups.spread(residuals), spread[:, None]], 1)
            self.scatter.baddbmm_(rows.mT, rows)  # adds exactly nothing to a class without samples
            return
        if self.kind == "full":
            batch = all_reduce(groups.products(residuals, residuals))
            batch.baddbmm_(spread[:, :, None], spread[:, None])
        else:
            batch = all_reduce(groups.sums(residuals.square())).add_(squares)
        if whole and self.forgetting == 1:
            self.scatter += batch
        else:
            self.scatter[where] = batch.add_(self.scatter[where], alpha=self.forgetting)

    def _merge_factor(self, groups: LabelGroups, residuals: Tensor, spread: Tensor, in_place: bool) -> None:
        assert self.factor is not None
        places = all_gather_rows(groups.slots // groups.width)
        blocks = LabelGroups.from_places(groups.labels, places).blocks(all_gather_rows(residuals))
        merged = [
            compress(torch.cat([old * self.forgetting**0.5, block, row[None]]), self.rank)
            for old, block, row in zip(self.factor[groups.labels], blocks, spread, strict=True)
        ]
        copy = self.factor.index_copy_ if in_place else self.factor.index_copy
        self.factor = copy(0, groups.labels, torch.stack(merged))

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> ClassStatistics:
        floors = {"mean": torch.float32, "scatter": torch.float32, "factor": torch.float32, "count": torch.float64}
        keep_precision(self, lambda: super(ClassStatistics, self)._apply(fn, recurse), floors)
        return self
