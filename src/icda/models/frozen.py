"""Pretrained parts of a model that are not trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from icda.models.encoders import CPU_BATCH


class Frozen(nn.Module):
    """A network that stays as it is: in evaluation mode, without gradients, also after `train()` or `requires_grad_()`.

    >>> frozen = Frozen(nn.Sequential(nn.Linear(2, 3), nn.Dropout())).train()
    >>> frozen(torch.ones(1, 2)).requires_grad, frozen.network.training
    (False, False)
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> Frozen:
        super().train(mode)
        self.network.eval()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Frozen:
        return self  # there is nothing to train here

    @torch.no_grad()
    def forward(self, inputs: Any) -> Tensor:
        if not isinstance(inputs, Tensor) or inputs.device.type != "cpu" or torch.onnx.is_in_onnx_export():
            features: Tensor = self.network(inputs)
            return features
        return torch.cat([self.network(part) for part in inputs.split(CPU_BATCH)])


class Restandardised(nn.Module):
    """Pixels standardised in one way, as another network expects them: x' = x * scale + shift.

    >>> Restandardised((0.5, 0.25), (0.0, 0.5))(torch.zeros(1, 3, 1, 1)).flatten()
    tensor([1., 1., 1.])
    """

    def __init__(self, given: tuple[float, float], wanted: tuple[float, float]) -> None:
        super().__init__()
        (mean, std), (other_mean, other_std) = given, wanted
        self.scale, self.shift = std / other_std, (mean - other_mean) / other_std

    def forward(self, images: Tensor) -> Tensor:
        return images * self.scale + self.shift
