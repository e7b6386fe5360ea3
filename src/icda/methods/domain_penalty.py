"""Penalties on differences between domains: the mean of the domains' losses plus a penalty."""

import math
import warnings
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError, InputTypeError
from icda.methods.base import Batch, Context, Output, Setup, StepResult, checked
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

    Every domain of the batch counts alike, however few its samples. Penalties are logged under their names, without their
    weights. `sampling` is domain_balanced as in DomainBed, or group_balanced, which also breaks the tie with the label.
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
        self.step_figures = {name: float(penalty.value.detach()) for name, penalty in penalties.items()}
        loss = losses.mean()
        for weight, value in penalties.values():
            if weight:  # 0 times a value that overflowed would be NaN
                loss = loss + weight * value
        return loss


class AnnealedPenalty(DomainPenalty):
    """A penalty of weight 1 first and of weight `penalty` after `anneal_steps`; a number below 1 is a share of training.

    The jump changes the size of the gradients at once, so the optimiser's state is dropped just before the first step
    after it, unless `reset_optimizer` is off; that it was done is part of the state. With penalty=0 and anneal_steps=0
    the loss is the mean of the domains' cross entropies.

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
