"""Small networks that turn numbers about a sample into a strength, and a log of the strengths given out."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from icda.errors import InputError
from icda.ranks import all_gather_rows, all_reduce

FEWEST = 4  # samples of a class in a batch, for a mean of its own
StrengthOutput = Literal["sigmoid", "tanh", "linear"]
OUTPUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "linear": lambda values: values,
}


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


class _Centre(torch.autograd.Function):
    """Values (N,) less the mean of their group, over the batches of all ranks; the gradient goes through the means."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, groups: Tensor, gather: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.groups, ctx.everyone, ctx.gather = groups, gather(groups), gather
        return values - _group_means(gather(values), ctx.everyone)[groups]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None]:
        means = _group_means(ctx.gather(slopes[0].contiguous()), ctx.everyone)
        return slopes[0] - means[ctx.groups], None, None


def _group_means(values: Tensor, groups: Tensor) -> Tensor:
    counts = torch.bincount(groups).to(values)
    return torch.zeros_like(counts).index_add(0, groups, values) / counts.clamp(min=1)


def centre(
    values: Tensor, targets: Tensor | None = None, gather: Callable[[Tensor], Tensor] = all_gather_rows
) -> Tensor:
    """Values (N,) less their mean in the batch of all ranks; with targets (N,), less that of their class.

    Classes with fewer than 4 samples in the batch are taken together: a mean of one or two would leave nothing.

    >>> centre(torch.tensor([1.0, 3.0]))
    tensor([-1.,  1.])
    >>> centre(torch.tensor([1.0, 1.0, 1.0, 5.0, 9.0]), torch.tensor([0, 0, 0, 0, 1]))
    tensor([-1., -1., -1.,  3.,  0.])
    """
    groups = torch.zeros(len(values), dtype=torch.long, device=values.device)
    if targets is not None:
        often = torch.bincount(gather(targets)) >= FEWEST
        groups = torch.where(often[targets], targets + 1, 0)
    centred: Tensor = _Centre.apply(values, groups, gather)
    return centred


class StrengthNetwork(nn.Module):
    """alpha_i = f(MLP(characteristics)): two hidden layers of 100.

    f is the sigmoid: strengths in (0, 1), about 0.5 at the start. With `output` "tanh" or "linear" strengths have a sign:
    a negative margin withdraws the sample. Unless `centred` is False the mean of its class over the batch is then taken
    off each (mathematics 9.4): a margin that all samples share makes the classifier less sure, which lowers the loss on
    metadata, and is what would be learned.

    Reference: section 4.2 of arXiv 2304.13431; sizes after the same authors' code (mathematics 1). Signed outputs, centring
    and withdrawal are ours.

    Args:
        num_inputs: Numbers about a sample that it reads.
        hidden: Width of the hidden layers.
        layers: Number of hidden layers.
        normalise_inputs: Whether inputs are standardised over the batches of all ranks.
        output: "sigmoid", "tanh" or "linear".
        centred: Whether the mean of the class is taken off; None does so where strengths have a sign.
        withdrawal: What negative strengths are multiplied by, after centring.

    >>> StrengthNetwork()(torch.randn(4, 10)).shape
    torch.Size([4])
    >>> bool(StrengthNetwork(output="tanh")(torch.randn(4, 10)).sum().abs() < 1e-6)
    True
    """

    def __init__(
        self,
        num_inputs: int = 10,
        hidden: int = 100,
        layers: int = 2,
        normalise_inputs: bool = True,
        output: StrengthOutput = "sigmoid",
        centred: bool | None = None,
        withdrawal: float = 1.0,
    ) -> None:
        super().__init__()
        if output not in OUTPUTS:
            raise InputError(f"strength_output is one of {', '.join(OUTPUTS)}, got {output!r}.")
        if not 0 <= withdrawal < float("inf"):
            raise InputError(f"withdrawal multiplies negative strengths: a number of 0 or more, got {withdrawal}.")
        self.withdrawal = withdrawal
        self.output: StrengthOutput = output
        self.centred = self.is_signed if centred is None else centred
        sizes = [num_inputs, *([hidden] * layers)]
        blocks: list[nn.Module] = [InputNorm(num_inputs)] if normalise_inputs else []
        for before, after in pairwise(sizes):
            blocks += [nn.Linear(before, after), nn.ReLU()]
        last = nn.Linear(sizes[-1], 1)
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(*blocks, last)

    @property
    def is_signed(self) -> bool:
        """Whether strengths may be negative before they are centred."""
        return self.output != "sigmoid"

    def forward(self, characteristics: Tensor, targets: Tensor | None = None) -> Tensor:
        """Strengths (N,); `targets` (N,) are read where strengths are centred within classes."""
        strengths = OUTPUTS[self.output](self.layers(characteristics)).squeeze(1)
        if self.centred:
            # What is trained is described by one rank alone: it must not wait for the others.
            strengths = centre(strengths, targets, all_gather_rows if self.training else lambda rows: rows)
        return strengths if self.withdrawal == 1 else torch.where(strengths < 0, self.withdrawal * strengths, strengths)


class StrengthLog(nn.Module):
    """Running means of strengths; a module, so that a run resumed within an epoch reports the whole of it.

    >>> log = StrengthLog(num_classes=2, num_groups=0)
    >>> log.add(torch.tensor([0.25, 0.75, 0.5]), torch.tensor([0, 0, 1]))
    >>> log.take()
    {'strength_mean': 0.5, 'strength_by_class': [0.5, 0.5]}
    """

    by_class: Tensor
    by_group: Tensor

    def __init__(self, num_classes: int, num_groups: int) -> None:
        super().__init__()
        self.register_buffer("by_class", torch.zeros(2, num_classes, dtype=torch.float64))  # sums, counts
        self.register_buffer("by_group", torch.zeros(2, num_groups, dtype=torch.float64))

    @torch.no_grad()
    def add(self, strengths: Tensor, targets: Tensor, groups: Tensor | None = None) -> None:
        """Count a batch, that of all ranks, so that any rank's state is the whole."""
        rows = torch.stack([strengths, torch.ones_like(strengths)]).double()
        _add(self.by_class, targets, rows)
        if groups is not None and self.by_group.shape[1]:
            _add(self.by_group, groups, rows)

    def take(self) -> dict[str, Any]:
        """The means so far; starts a new epoch. None stands where there was no sample."""
        total, count = self.by_class.sum(1).tolist()
        if not count:
            return {}
        figures: dict[str, Any] = {"strength_mean": total / count, "strength_by_class": _means(self.by_class)}
        if self.by_group.shape[1]:
            figures["strength_by_group"] = _means(self.by_group)
        self.by_class.zero_()
        self.by_group.zero_()
        return figures


def _add(sums: Tensor, labels: Tensor, rows: Tensor) -> None:
    batch = torch.zeros_like(sums).index_add_(1, labels, rows)
    sums += all_reduce(batch)


def _means(sums: Tensor) -> list[float | None]:
    return [total / count if count else None for total, count in sums.T.tolist()]
