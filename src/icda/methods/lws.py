"""LWS: learn the classifier from the data as they come, then only how long each class's weight vector is."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.losses.head import Head, head_parameters
from icda.methods.base import METHODS, Batch, Context, FeatureClassifier, Stage, StepResult
from icda.methods.crt import ClassifierRetraining, two_stages
from icda.models.base import Output


class ScaledLinear(nn.Module):
    """f_c (w_c . h + b_c): a linear layer with a factor for each class, one to begin with.

    `weight` and `bias` are those of the linear layer that it is, f_c w_c and f_c b_c, so that whatever reads a head can
    read this one. Maps features (N, A) to logits (N, C).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.unscaled_weight = nn.Parameter(weight.detach().clone(), requires_grad=weight.requires_grad)
        self.unscaled_bias = (
            None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=bias.requires_grad)
        )
        self.scale = nn.Parameter(weight.new_ones(len(weight)).detach(), requires_grad=weight.requires_grad)

    @classmethod
    def of(cls, head: Head) -> ScaledLinear:
        """This head with another head's weights. Draws no random number."""
        return cls(*head_parameters(head))

    @property
    def weight(self) -> Tensor:
        return self.scale[:, None] * self.unscaled_weight

    @property
    def bias(self) -> Tensor | None:
        return None if self.unscaled_bias is None else self.scale * self.unscaled_bias

    def still(self, *, scales: bool) -> list[nn.Parameter]:
        """What does not learn while the scales do, or while weight and bias do."""
        if not scales:
            return [self.scale]
        return [self.unscaled_weight] if self.unscaled_bias is None else [self.unscaled_weight, self.unscaled_bias]

    def forward(self, features: Tensor) -> Tensor:
        return self.scale * F.linear(features, self.unscaled_weight, self.unscaled_bias)

    def logits_for(self, features: Tensor, *, scales: bool) -> Tensor:
        """The same logits; their gradient with respect to what is `still` is zero."""
        scale, weight, bias = self.scale, self.unscaled_weight, self.unscaled_bias
        if scales:
            weight, bias = weight.detach(), None if bias is None else bias.detach()  # type: ignore[assignment]
        else:
            scale = scale.detach()  # type: ignore[assignment]
        zero = 0 * torch.stack([parameter.sum() for parameter in self.still(scales=scales)]).sum()
        return scale * F.linear(features, weight, bias) + zero

    def extra_repr(self) -> str:
        classes, features = self.unscaled_weight.shape
        return f"in_features={features}, out_features={classes}, bias={self.unscaled_bias is not None}"


@METHODS.register("lws")
class LearnableWeightScaling(ClassifierRetraining):
    """Train with cross entropy, then learn only one factor per class on class-balanced batches.

    Cross entropy takes `first_stage` of the epochs. The factors start at one and multiply weight vector and bias of
    their class; all else stays what the first stage made it. Optimiser and schedule start again. Both stages have an
    epoch at least.

    Reference: Kang et al., "Decoupling representation and classifier for long-tailed recognition", ICLR 2020, section
    4.3.
    """

    def prepare_network(self, network: FeatureClassifier) -> FeatureClassifier:
        network.head = ScaledLinear.of(network.head)
        return network

    def stages(self, epochs: int) -> list[Stage]:
        first, second = two_stages("lws", epochs, self.first_stage)
        scaling: dict[str, Any] = {"trains": "head", "sampling": "class_balanced", "restart": True}
        parts: list[dict[str, Any]] = [
            {"loss": partial(self.stage_loss, scales=scales), "step": partial(self.stage_step, scales=scales)}
            for scales in (False, True)
        ]
        return [
            Stage(first, "representation", restart=True, **parts[0]),
            Stage(second, "scales", **scaling, **parts[1]),
        ]

    def stage_loss(self, output: Output, batch: Batch, context: Context, *, scales: bool) -> Tensor:
        return F.cross_entropy(_head(context).logits_for(output.features, scales=scales), batch.targets)

    def stage_step(self, batch: Batch, context: Context, *, scales: bool) -> StepResult:
        """A step after which what does not learn in this stage is put back.

        Its gradient is zero, but weight decay moves it. It cannot be frozen here: the network is wrapped for several
        processes by now, and they wait for a gradient of every parameter that had one when the stage began.
        """
        still = _head(context).still(scales=scales)
        kept = [parameter.detach().clone() for parameter in still]
        result = self.step(batch, context)
        with torch.no_grad():
            for parameter, value in zip(still, kept, strict=True):
                parameter.copy_(value)
        return result


def _head(context: Context) -> ScaledLinear:
    head = context.head
    assert isinstance(head, ScaledLinear), "prepare_network put it there"
    return head
