"""Small networks that turn numbers about a sample into a strength in (0, 1)."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from icda.ranks import all_reduce


class InputNorm(nn.Module):
    """BatchNorm over constant inputs, with the batches of all ranks seen as one.

    The inputs carry no gradient, so batch mean and variance are plain numbers: they can be all-reduced, which torch's
    BatchNorm does not do on a CPU.

    >>> InputNorm(2)(torch.tensor([[0.0, 1.0], [2.0, 1.0]])).round(decimals=2).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    running_mean: Tensor
    running_variance: Tensor

    def __init__(self, size: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.scale, self.shift = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_variance", torch.ones(size))

    def forward(self, inputs: Tensor) -> Tensor:
        mean, variance = self.running_mean, self.running_variance
        if self.training:
            mean, variance = self._observe(inputs.detach())
        return (inputs - mean) / (variance + self.eps).sqrt() * self.scale + self.shift

    @torch.no_grad()
    def _observe(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        count = all_reduce(inputs.new_tensor(float(len(inputs))))
        mean = all_reduce(inputs.sum(0)) / count
        variance = all_reduce((inputs - mean).square().sum(0)) / count
        self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
        self.running_variance.lerp_(variance.to(self.running_variance), self.momentum)
        return mean, variance


class StrengthNetwork(nn.Module):
    """alpha_i = sigmoid(MLP(characteristics)): two hidden layers of 100, about 0.5 at the start.

    Reference: section 4.2 of arXiv 2304.13431 ("a two-layer MLP"); sizes after the same authors' code (mathematics 1).

    >>> StrengthNetwork()(torch.randn(4, 10)).shape
    torch.Size([4])
    """

    def __init__(self, num_inputs: int = 10, hidden: int = 100, layers: int = 2, normalise_inputs: bool = True) -> None:
        super().__init__()
        sizes = [num_inputs, *([hidden] * layers)]
        blocks: list[nn.Module] = [InputNorm(num_inputs)] if normalise_inputs else []
        for before, after in pairwise(sizes):
            blocks += [nn.Linear(before, after), nn.ReLU()]
        last = nn.Linear(sizes[-1], 1)
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(*blocks, last)

    def forward(self, characteristics: Tensor) -> Tensor:
        return torch.sigmoid(self.layers(characteristics)).squeeze(1)
