"""A linear head that learns from batches as they come, for data that is never in one place."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.functional.confusion import count_confusions
from icda.heads.problem import LossSettings
from icda.losses import AdjustedLoss, CrossEntropyLoss, ICDALoss, ISDALoss, LogitAdjustmentLoss, RISDALoss
from icda.losses.augmented import StatisticsLoss
from icda.statistics import ClassStatistics

BATCH = 128
RATE = 0.05
RATE_FALLS_AFTER = 100  # steps; from there on the rate falls as 1 / sqrt(t)
BETAS = (0.9, 0.999)
AVERAGE_POWER = 8  # the average forgets the beginning of the way


@dataclass(frozen=True)
class _StandardSpace:
    """Heads as they are on centred, scaled features: the same logits, in coordinates that suit one step size."""

    centre: Tensor
    scale: Tensor  # infinite where a feature does not vary: no step goes there

    @classmethod
    def of(cls, statistics: ClassStatistics) -> Self:
        share = (statistics.count / statistics.count.sum()).to(statistics.mean)[:, None]
        centre = (share * statistics.mean).sum(0)
        within = statistics.scatter.diagonal(dim1=1, dim2=2) if statistics.kind == "full" else statistics.scatter
        between = share * (statistics.mean - centre).square()
        variance = within.sum(0) / float(statistics.count.sum()) + between.sum(0)
        scale = variance.sqrt()
        noise = 8 * torch.finfo(scale.dtype).eps * centre.abs()  # what rounding alone can make of a constant
        return cls(centre, torch.where(scale > noise, scale, torch.inf))

    def gradient(self, raw: Tensor) -> Tensor:
        to_bias = raw[:, -1:]
        return torch.cat([(raw[:, :-1] - to_bias * self.centre) / self.scale, to_bias], 1)

    def displacement(self, step: Tensor) -> Tensor:
        to_weight = step[:, :-1] / self.scale
        return torch.cat([to_weight, step[:, -1:] - (to_weight @ self.centre)[:, None]], 1)


class OnlineHead:
    """Adam on mini-batches, with exact running statistics and a running average of the head.

    Rows of a call are first folded into the statistics, and then taken in the order given, `BATCH` at a time. Step t has
    the rate RATE / sqrt(1 + t / RATE_FALLS_AFTER), in coordinates in which every feature seen so far has mean zero and
    variance one. What is learned is the average of the heads so far with weights rising as t^AVERAGE_POWER (Shamir and
    Zhang, ICML 2013), which needs no end in sight. No random numbers are drawn. The weight decay is 1 / (C * mass of all
    samples seen), so that one pass over the batches aims at the head that `fit` finds; a sample seen twice is two samples.

    >>> torch.manual_seed(0) and None
    >>> head = OnlineHead(2, 1, LossSettings("ce"), C=1.0)
    >>> for _ in range(50):
    ...     targets = torch.arange(64) % 2
    ...     head.update(targets[:, None] + 0.2 * torch.randn(64, 1), targets)
    >>> bool((head.weight @ torch.tensor([1.0]) + head.bias).argmax() == 1)
    True
    """

    def __init__(
        self,
        num_classes: int,
        feature_dim: int,
        settings: LossSettings,
        C: float,
        balance_classes: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.settings, self.C, self.balance_classes = settings, C, balance_classes
        self.loss = _make_loss(settings, num_classes, feature_dim).to(dtype).eval()
        if isinstance(self.loss, StatisticsLoss):
            self.statistics = self.loss.statistics
        else:
            self.statistics = ClassStatistics(num_classes, feature_dim, "diagonal").to(dtype)
        self.current = torch.zeros(num_classes, feature_dim + 1, dtype=dtype)  # weight and bias side by side
        self.average = torch.zeros_like(self.current)
        self.first, self.second = torch.zeros_like(self.current), torch.zeros_like(self.current)  # Adam's moments
        self.steps = self.samples = 0
        self.passes = 1  # how often the same samples come again; the caller says so
        # RISDA reads confusions. Those of its own first heads would undo what the classes differ in, so another is asked.
        scouts = settings.name == "risda"
        self.scout = OnlineHead(num_classes, feature_dim, LossSettings("la"), C, dtype=dtype) if scouts else None

    @property
    def weight(self) -> Tensor:
        return self.average[:, :-1]

    @property
    def bias(self) -> Tensor:
        return self.average[:, -1]

    def start_from(self, weight: Tensor, bias: Tensor) -> None:
        """Take a head over as the place to begin."""
        self.current = torch.cat([weight, bias[:, None]], 1).to(self.current)
        self.average = self.current.clone()

    @torch.no_grad()
    def update(self, features: Tensor, targets: Tensor, weights: Tensor | None = None) -> None:
        """Learn from a batch; `weights` (N,) let samples count differently, and those of weight 0 not at all."""
        features = features.to(self.current)
        mass = torch.ones_like(features[:, 0]) if weights is None else weights.to(features)
        used = mass > 0
        if not used.all():
            features, targets, mass = features[used], targets[used], mass[used]
        if not len(targets):
            return
        self.statistics.update(features, targets, mass)
        self.samples += len(targets)
        if self.loss.class_counts is not None:
            count = self.statistics.count
            self.loss.class_counts = (count > 0).double() if self.balance_classes else count.clone()
        if self.scout is not None:
            self.scout.update(features, targets, mass)
            assert isinstance(self.loss, RISDALoss)
            predicted = F.linear(features, self.scout.weight, self.scout.bias).argmax(1)
            self.loss.confusion += count_confusions(predicted, targets, self.loss.num_classes, mass)
        space = _StandardSpace.of(self.statistics)
        typical = float(self.statistics.count.sum()) / self.samples
        parts = max(1, round(len(targets) / BATCH))  # of nearly equal size: a short last batch would be a noisy step
        for rows in torch.arange(len(targets)).tensor_split(parts):
            gradient = self._gradient(features[rows], targets[rows], mass[rows] / typical)
            self._move(gradient, space)

    def _gradient(self, features: Tensor, targets: Tensor, mass: Tensor) -> Tensor:
        with torch.enable_grad():
            head = self.current.clone().requires_grad_()
            logits = F.linear(features, head[:, :-1], head[:, -1])
            adjusted = logits + self.loss.adjustment(features, targets, (head[:, :-1], head[:, -1]), 1.0, logits)
            if self.balance_classes:
                count = self.statistics.count
                mass = mass * (count.sum() / ((count > 0).sum() * count))[targets].to(mass)
            value = (mass * F.cross_entropy(adjusted, targets, reduction="none")).mean()
        (gradient,) = torch.autograd.grad(value, head)
        gradient[:, :-1] += self.current[:, :-1] * (self.passes / (self.C * float(self.statistics.count.sum())))
        return gradient

    def _move(self, gradient: Tensor, space: _StandardSpace) -> None:
        """One step of Adam among standardised features, and the average with it."""
        self.steps += 1
        gradient = space.gradient(gradient)
        self.first.lerp_(gradient, 1 - BETAS[0])
        self.second.lerp_(gradient.square(), 1 - BETAS[1])
        mean = self.first / (1 - BETAS[0] ** self.steps)
        spread = (self.second / (1 - BETAS[1] ** self.steps)).sqrt()
        rate = RATE / (1 + self.steps / RATE_FALLS_AFTER) ** 0.5
        self.current -= space.displacement(rate * mean / (spread + 1e-8))
        self.average.lerp_(self.current, (AVERAGE_POWER + 1) / (self.steps + AVERAGE_POWER))


def _make_loss(settings: LossSettings, num_classes: int, feature_dim: int) -> AdjustedLoss:
    counts = torch.ones(num_classes)  # until the first batch is counted
    if settings.name == "ce":
        return CrossEntropyLoss(num_classes, feature_dim)
    if settings.name == "la":
        return LogitAdjustmentLoss(num_classes, feature_dim, counts)
    if settings.name == "isda":
        return ISDALoss(num_classes, feature_dim, lambda0=settings.lam)
    if settings.name == "risda":
        return RISDALoss(num_classes, feature_dim, lambda0=settings.lam, mean_strength=settings.mean_strength)
    return ICDALoss(num_classes, feature_dim, counts, lambda0=settings.lam, beta=settings.beta)
