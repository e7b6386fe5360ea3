"""Learning on metadata: look ahead, correct the outer variables, take the real step."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from icda.errors import InputTypeError
from icda.meta import Forward, MetaGradient, look_ahead
from icda.meta.lookahead import InnerLoss, Mode
from icda.methods.base import Batch, Context, Inputs, Method, Output, StepResult
from icda.ranges import PositiveInt, Share


class Outer(NamedTuple):
    """An inner loss and the tensors it is to be corrected in."""

    tensors: Sequence[Tensor]
    inner: InnerLoss


class MetaLearner(Method):
    """Algorithm 1 of arXiv 2304.13431 as a template: a subclass says what is learned on metadata, and how.

    `start` is the share of training before which the method trains without looking ahead; `every` looks ahead at each
    k-th iteration only. `meta_batch_size` is how many samples of metadata a step looks at, over all processes; by default
    as many as are trained on.
    """

    needs = frozenset({"metadata"})
    optimizer: torch.optim.Optimizer

    def __init__(
        self,
        *,
        lookahead: Mode = "full",
        every: PositiveInt = 1,
        start: Share = 0.0,
        meta_batch_size: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        self.lookahead, self.every, self.start = lookahead, every, start
        self.meta_batch_size = meta_batch_size

    def observe(self, output: Output, batch: Batch, context: Context) -> None:
        """Fold the batch into whatever the method keeps, before anything is computed from it."""

    def outer(self, output: Output, batch: Batch, context: Context) -> Outer:
        """The inner loss of this batch and the tensors to correct."""
        raise InputTypeError(f"{type(self).__name__} does not define outer().")

    def correct(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor], context: Context) -> None:
        """Step the tensors along their meta-gradients: those of `optimizer`, unless a subclass says otherwise."""
        step_along(self.optimizer, gradients)

    def looks_ahead(self, context: Context) -> bool:
        return context.progress >= self.start and context.iteration % self.every == 0

    def step(self, batch: Batch, context: Context) -> StepResult:
        looks_ahead = self.looks_ahead(context)
        forward = Forward.of(context.network, batch.inputs, record=looks_ahead and self.lookahead != "head")
        output: Any = forward.output
        with torch.autocast(output.logits.device.type, enabled=False):  # it is for the network's passes alone
            self.observe(output, batch, context)
            extra = {}
            if looks_ahead:
                extra["meta_loss"] = self.meta_step(forward, batch, context)
            del forward  # the real backward pass lets go of activations layer by layer
            loss = self.loss(output, batch, context)
        context.apply(loss)
        return StepResult(loss.detach(), output.logits.detach(), extra)

    def meta_step(self, forward: Forward, batch: Batch, context: Context) -> float:
        """One look ahead on a batch of metadata; returns the metadata loss after the virtual step."""
        assert context.next_metadata is not None
        metadata = context.next_metadata()
        outer = self.outer(forward.output, batch, context)  # type: ignore[arg-type]
        ahead = self.look(forward, outer, metadata.inputs, metadata.targets, context)
        self.correct(outer.tensors, ahead.gradients, context)
        return float(ahead.meta_loss)

    def look(self, forward: Forward, outer: Outer, inputs: Inputs, targets: Tensor, context: Context) -> MetaGradient:
        """Gradients of the loss on some samples after a virtual step of the first network."""
        given = (outer.inner, outer.tensors, inputs, targets, context.learning_rate, self.lookahead)
        return look_ahead(context.models[0], forward, *given)


def step_along(optimizer: torch.optim.Optimizer, gradients: Sequence[Tensor]) -> None:
    """An optimiser step with given gradients of its parameters, in their order."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.detach().to(parameter)
    optimizer.step()
    optimizer.zero_grad()
