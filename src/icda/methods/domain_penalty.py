"""Penalties on differences between domains: the mean of the domains' losses plus IRM's, IB-IRM's, V-REx's or CORAL's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError, InputTypeError
from icda.methods.base import METHODS, Batch, Context, Output, Setup, StepResult, checked
from icda.methods.domains import DomainMethod, DomainSampling, per_domain
from icda.ranges import NotNegative


class DomainPart(NamedTuple):
    """What a batch holds of one domain: `features` (n, A), `logits` (n, C), `targets` (n,)."""

    features: Tensor
    logits: Tensor
    targets: Tensor

    @property
    def loss(self) -> Tensor:
        return F.cross_entropy(self.logits, self.targets)

    @property
    def has_pair(self) -> bool:
        """Whether there are two samples: one alone has neither a variance nor two halves."""
        return len(self.targets) > 1


class Penalty(NamedTuple):
    """A term of the loss and its weight in this step."""

    weight: float
    value: Tensor


class DomainPenalty(DomainMethod):
    """mean_e L_e, L_e the cross entropy of domain e in the batch, plus the penalties that a subclass names.

    Every domain of the batch counts alike, however few its samples. The values of the penalties are logged under their
    names, without their weights. A training set that has samples of one domain only is refused. `sampling` is that of a
    stage: domain_balanced as in DomainBed, or group_balanced, which also breaks the tie between label and domain.
    """

    feature_weight: ClassVar[str] = ""  # the option that weighs a penalty on features, if there is one

    def on_stage_start(self, context: Context) -> None:
        """A penalty on features does nothing where no weight of the encoder learns, as with a linear model."""
        weight = getattr(self, self.feature_weight, 0)
        learned = (value.requires_grad for model in context.models for value in model.encoder.parameters())
        if weight and not any(learned):
            warnings.warn(
                f"{type(self).__name__} acts on features, and this network's are fixed: its penalty "
                f"({self.feature_weight}={weight}) changes nothing.",
                stacklevel=2,
            )

    def penalties(self, parts: Sequence[DomainPart], losses: Tensor, context: Context) -> dict[str, Penalty]:
        """The terms to add, always of the same names; `losses` (E,) are the L_e of `parts`."""
        raise InputTypeError(f"{type(self).__name__} does not define penalties().")

    def loss(self, output: Output, batch: Batch, context: Context) -> Tensor:
        domains = self.domains(batch)
        # Squares and covariances overflow half precision.
        with torch.autocast(output.logits.device.type, enabled=False):
            values = (_at_least_single(output.features), _at_least_single(output.logits), batch.targets)
            cut = (per_domain(value, domains) for value in values)
            parts = [DomainPart(*part) for part in zip(*cut, strict=True)]
            losses = torch.stack([part.loss for part in parts])
            penalties = self.penalties(parts, losses, context)
        self._figures = {name: float(penalty.value.detach()) for name, penalty in penalties.items()}
        loss = losses.mean()
        for weight, value in penalties.values():
            if weight:  # 0 times a value that overflowed would be NaN
                loss = loss + weight * value
        return loss

    def step(self, batch: Batch, context: Context) -> StepResult:
        return super().step(batch, context)._replace(extra=self._figures)


class AnnealedPenalty(DomainPenalty):
    """A penalty of weight 1 first and of weight `penalty` after `anneal_steps`; a number below 1 is a share of training.

    The jump changes the size of the gradients at once, which the running means of Adam do not follow. So the state of the
    optimiser, Adam's means or the momentum of SGD, is dropped just before the first step after it, unless
    `reset_optimizer` is off. Whether that has been done is part of the state, so a resumed run does it once, too.

    Reference: Gulrajani and Lopez-Paz, "In search of lost domain generalization", ICLR 2021 (DomainBed).
    """

    has_jumped: Tensor

    @checked
    def __init__(
        self,
        setup: Setup,
        *,
        penalty: NotNegative = 100.0,
        anneal_steps: NotNegative = 500,
        reset_optimizer: bool = True,
        sampling: DomainSampling = "domain_balanced",
    ) -> None:
        super().__init__(setup, sampling)
        if not (0 <= anneal_steps < 1 or (anneal_steps >= 1 and float(anneal_steps).is_integer())):
            raise InputError(
                f"anneal_steps is a whole number of steps, or a share of training below 1, got {anneal_steps}."
            )
        self.penalty, self.anneal_steps, self.reset_optimizer = penalty, anneal_steps, reset_optimizer
        # Or at most one per epoch more: the loader may drop a last batch of few samples.
        size = setup.batch_size
        self._most_steps = None if size is None else setup.epochs * math.ceil(setup.num_samples / size)
        self.register_buffer("has_jumped", torch.tensor(False))

    def is_in_force(self, context: Context) -> bool:
        """Whether the first part of training is over."""
        done = context.progress if self.anneal_steps < 1 else context.iteration
        return done >= self.anneal_steps

    def penalty_weight(self, context: Context) -> float:
        return self.penalty if self.is_in_force(context) else 1.0

    def on_stage_start(self, context: Context) -> None:
        super().on_stage_start(context)
        if self._most_steps is not None and self.anneal_steps >= max(self._most_steps, 1):
            warnings.warn(
                f"{type(self).__name__}: anneal_steps is {self.anneal_steps}, and this training has {self._most_steps} "
                f"steps: the penalty never gets its weight of {self.penalty}. Give a share of training, such as 0.1.",
                stacklevel=2,
            )

    def step(self, batch: Batch, context: Context) -> StepResult:
        if self.is_in_force(context) and not self.has_jumped:
            self.has_jumped.fill_(True)
            if self.reset_optimizer:
                for optimizer in context.optimizers:
                    optimizer.state.clear()
        return super().step(batch, context)


def mean_or_zero(values: Sequence[Tensor], like: Tensor) -> Tensor:
    """The mean of numbers, 0 where no domain of the batch has one."""
    return torch.stack(list(values)).mean() if values else like.new_zeros(())


def _at_least_single(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def scale_gradient(logits: Tensor, targets: Tensor) -> Tensor:
    """d CE(s z) / ds at s = 1: mean_i sum_c (p_ic - y_ic) z_ic, with p = softmax(z) and y one-hot.

    It is zero where no factor before the logits (N, C) would lower the loss. Being written out, it is differentiated
    once and needs no double backward.
    """
    own = logits.gather(1, targets[:, None])
    return (logits.softmax(1) * (logits - own)).sum(1).mean()


def invariance_penalty(parts: Sequence[DomainPart]) -> Tensor:
    """mean_e g_e g'_e, with g and g' the scale gradients of every other sample of domain e and of the rest.

    The product of two halves has the square of the expected gradient as its mean; the square of one gradient would have
    its variance on top. A domain of a single sample has no halves and is left out.
    """
    products = [
        scale_gradient(part.logits[::2], part.targets[::2]) * scale_gradient(part.logits[1::2], part.targets[1::2])
        for part in parts
        if part.has_pair
    ]
    return mean_or_zero(products, parts[0].logits)


@METHODS.register("irm")
class IRM(AnnealedPenalty):
    """Penalise domains that would prefer logits of another scale.

    The loss is mean_e L_e + penalty * mean_e (d L_e(s z) / ds at s = 1)^2 over domains e.
    The square is estimated without bias from two half batches, so it may be negative in a batch. The penalty weighs 1 for
    `anneal_steps` (a number below 1 is a share of training), then `penalty`; the optimiser starts again at that moment.
    With penalty=0 and anneal_steps=0 it is the mean of the domains' cross entropies.

    Reference: Arjovsky et al., "Invariant risk minimization", 2019 (IRMv1), with the figures of DomainBed. Differs from
    DomainBed in that the gradient is written out, which is exact and spares the double backward.
    """

    def penalties(self, parts: Sequence[DomainPart], losses: Tensor, context: Context) -> dict[str, Penalty]:
        return {"invariance_penalty": Penalty(self.penalty_weight(context), invariance_penalty(parts))}


def feature_variance(parts: Sequence[DomainPart]) -> Tensor:
    """mean_e mean_a Var(h_a): the variance over a domain's samples, unbiased, of each feature.

    A domain of a single sample has no variance and is left out.
    """
    variances = [part.features.var(dim=0).mean() for part in parts if part.has_pair]
    return mean_or_zero(variances, parts[0].features)


@METHODS.register("ib_irm")
class IBIRM(IRM):
    """IRM plus a penalty on the variance of features within a domain, as an information bottleneck.

    The penalty is `ib` times the mean variance.
    Among features that serve all domains equally well those of little entropy are preferred; the variance stands for
    the entropy. Its weight is 0 for `anneal_steps`, then `ib`. With ib=0 it is IRM.

    Reference: Ahuja et al., "Invariance principle meets information bottleneck for out-of-distribution generalization",
    NeurIPS 2021, with the figures of DomainBed. Differs from DomainBed in having one `anneal_steps` for both terms (500
    for each there).
    """

    feature_weight = "ib"

    @checked
    def __init__(self, setup: Setup, *, ib: NotNegative = 100.0, **options: Any) -> None:
        super().__init__(setup, **options)
        self.ib = ib

    def penalties(self, parts: Sequence[DomainPart], losses: Tensor, context: Context) -> dict[str, Penalty]:
        weight = self.ib if self.is_in_force(context) else 0.0
        bottleneck = {"feature_variance": Penalty(weight, feature_variance(parts))}
        return super().penalties(parts, losses, context) | bottleneck


@METHODS.register("v_rex", "vrex")
class VREx(AnnealedPenalty):
    """Penalise the variance of the domains' losses.

    The loss is mean_e L_e + penalty * Var_e(L_e), with L_e the cross entropy of domain e in the batch.
    The variance is that of the domains present, divided by their number; it is 0 in a batch of one domain. It weighs 1 for
    `anneal_steps` (a number below 1 is a share of training), then `penalty`; the optimiser starts again at that moment.
    With penalty=0 and anneal_steps=0 it is the mean of the domains' cross entropies.

    Reference: Krueger et al., "Out-of-distribution generalization via risk extrapolation (REx)", ICML 2021, with the
    figures of DomainBed.
    """

    @checked
    def __init__(self, setup: Setup, *, penalty: NotNegative = 10.0, **options: Any) -> None:
        super().__init__(setup, penalty=penalty, **options)

    def penalties(self, parts: Sequence[DomainPart], losses: Tensor, context: Context) -> dict[str, Penalty]:
        return {"loss_variance": Penalty(self.penalty_weight(context), losses.var(correction=0))}


def mean_squared_difference(moments: Sequence[Tensor]) -> Tensor:
    """Mean over pairs of tensors of the mean squared difference of their entries; 0 where there is no pair.

    The mean of (x_a - x_b)^2 over all pairs is twice the unbiased variance of x, so the pairs need not be formed.
    """
    if len(moments) < 2:
        return moments[0].new_zeros(()) if moments else torch.zeros(())
    centre = sum(moments[1:], start=moments[0]) / len(moments)
    # Not torch.var over the stacked tensors: along so short a dimension it takes twenty times as long.
    squares = torch.stack([(moment - centre).square().mean() for moment in moments])
    return 2 * squares.sum() / (len(moments) - 1)


def correlation_alignment(parts: Sequence[DomainPart]) -> Tensor:
    """Mean over pairs of domains of the mean squared difference of feature means (A,) and of covariances (A, A).

    Covariances are unbiased. A domain of a single sample has a mean and no covariance: it is left out of the second term.
    """
    means = [part.features.mean(0) for part in parts]
    covariances = [_covariance(part.features) for part in parts if part.has_pair]
    return mean_squared_difference(means) + mean_squared_difference(covariances).to(means[0])


def _covariance(features: Tensor) -> Tensor:
    centred = features - features.mean(0)
    return centred.T @ centred / (len(features) - 1)


@METHODS.register("coral", "deep_coral")
class CORAL(DomainPenalty):
    """Align the means and covariances of the features of all domains.

    The loss is mean_e L_e + gamma * mean over pairs of domains of the squared differences of means and covariances.
    Both differences are means over their entries, A and A^2 of them. A batch of one domain has no pair, and the term is 0.
    gamma=0 is the mean of the domains' cross entropies.

    Reference: Sun and Saenko, "Deep CORAL: correlation alignment for deep domain adaptation", ECCV 2016 workshops, in
    DomainBed's form, which aligns all training domains with each other and the means, too.
    """

    feature_weight = "gamma"

    @checked
    def __init__(self, setup: Setup, *, gamma: NotNegative = 1.0, sampling: DomainSampling = "domain_balanced") -> None:
        super().__init__(setup, sampling)
        self.gamma = gamma

    def penalties(self, parts: Sequence[DomainPart], losses: Tensor, context: Context) -> dict[str, Penalty]:
        return {"alignment_penalty": Penalty(self.gamma, correlation_alignment(parts))}
