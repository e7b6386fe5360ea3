"""Heads and losses that see directions only: logits are scaled cosines between features and class weights."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.losses.base import AdjustedLoss
from icda.losses.batch import LossBatch
from icda.losses.head import Head, head_parameters
from icda.statistics.checks import check_number

SCALE = 30.0


def cosines(features: Tensor, weight: Tensor) -> Tensor:
    """cos(h_i, w_c) (N, C), in single precision or better. A vector of length zero has cosine 0 with everything.

    >>> cosines(torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [3.0, 3.0]]))
    tensor([[1.0000, 0.7071],
            [0.0000, 0.0000]])
    """
    # Times a scale of 30, the eight bits of bfloat16 would round a logit by a tenth.
    with torch.autocast(features.device.type, enabled=False):
        dtype = torch.promote_types(torch.promote_types(features.dtype, weight.dtype), torch.float32)
        return F.linear(unit_rows(features.to(dtype)), unit_rows(weight.to(dtype)))


def unit_rows(vectors: Tensor) -> Tensor:
    """Rows of length one; a row of zeros stays as it is and gets no gradient, for it has no direction to turn."""
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(length > 0, length, math.inf)


class CosineHead(nn.Linear):
    """A last layer whose logits are scale * cos(h, w_c): no bias, and lengths do not matter.

    Put it where a network's nn.Linear was, `model.fc = CosineHead.of(model.fc)`, and training with `LDAMLoss` or
    `AdaptiveLogitAdjustmentLoss`, prediction and checkpoint agree. `icda train` does so by itself.

    Maps features (N, A) to logits (N, C).

    Args:
        in_features: Number of features A.
        out_features: Number of classes C.
        scale: What cosines are multiplied by.

    >>> head = CosineHead.of(nn.Linear(4, 3), scale=16.0)
    >>> features = torch.randn(2, 4)
    >>> torch.allclose(head(features), head(5 * features), atol=1e-5), bool(head(features).abs().max() <= 16.001)
    (True, True)
    """

    def __init__(self, in_features: int, out_features: int, scale: float = SCALE) -> None:
        check_number(scale, "scale", type(self).__name__, 1e-12)
        super().__init__(in_features, out_features, bias=False)
        self.scale = scale

    @classmethod
    def of(cls, head: Head, scale: float = SCALE) -> CosineHead:
        """A cosine head with the directions of another head's weights; its bias is dropped. Draws no random number."""
        weight, _ = head_parameters(head)
        with torch.random.fork_rng(devices=[]):
            cosine_head = cls(weight.shape[1], weight.shape[0], scale)
        cosine_head.weight = nn.Parameter(unit_rows(weight.detach()), requires_grad=weight.requires_grad)
        return cosine_head

    def reset_parameters(self) -> None:
        """Uniform directions of length one: the shorter a weight, the further a step turns it."""
        with torch.no_grad():
            self.weight.copy_(unit_rows(nn.init.uniform_(self.weight, -1, 1)))

    def forward(self, features: Tensor) -> Tensor:
        return self.scale * cosines(features, self.weight)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, scale={self.scale:g}"


class CosineLoss(AdjustedLoss):
    """Cross entropy of s cos(h, w_c) + phi: what LDAM and ALA share.

    The cosines are computed from `features` and the head's weight whatever the head is; its bias and the argument `logits`
    are not used. So the head's own output is not what is trained unless it is a `CosineHead`: predict with
    `cosine_logits(features, head)`, or change the head once with `prepare_head`. Plain logits in a call are taken as a sign
    of plain logits at test time, and warned about once.

    Args:
        scale: s, what cosines are multiplied by.
    """

    def __init__(self, *sizes: Any, scale: float = SCALE, **options: Any) -> None:
        super().__init__(*sizes, **options)
        check_number(scale, "scale", type(self).__name__, 1e-12)
        self.scale = scale
        self._has_warned = False

    def forward(
        self, features: Tensor, targets: Tensor, head: Any = None, progress: Any = 1.0, logits: Any = None, **prior: Any
    ) -> Tensor:
        """The loss of a batch, as in `AdjustedLoss`; `logits` are not used."""
        if logits is not None:
            self._warn_of_plain_logits(head)
        return super().forward(features, targets, head, progress, logits, **prior)

    def cosine_logits(self, features: Tensor, head: Head) -> Tensor:
        """s cos(h, w_c) (N, C): what to predict with."""
        return self.scale * cosines(features, head_parameters(head)[0])

    def prepare_head(self, head: nn.Module) -> CosineHead:
        return CosineHead.of(head, self.scale)

    def prepare(self, batch: LossBatch) -> LossBatch:
        return replace(batch, bias=None, logits=self.scale * cosines(batch.features, batch.weight))

    def _warn_of_plain_logits(self, head: Head) -> None:
        if self._has_warned or isinstance(head, CosineHead):
            return
        self._has_warned = True
        warnings.warn(
            f"{type(self).__name__} trains cosines, and the logits given are a {type(head).__name__}'s, which are not used "
            "here. Replace the head once, model.fc = loss.prepare_head(model.fc), before the optimiser is made, or "
            "predict with loss.cosine_logits(features, head).",
            stacklevel=5,  # past nn.Module's own call, to the line that called the loss
        )
