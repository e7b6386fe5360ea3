"""What a method costs beside plain cross entropy: time and operations of a step, parameters that are trained along."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from icda.data.task import Batch
from icda.errors import InputError
from icda.methods import Context, Setup, create_method
from icda.models import create_model
from icda.models.base import FeatureClassifier
from icda_bench.cost.operations import count_operations
from icda_bench.cost.timing import Step, interleave


@dataclass(frozen=True)
class MethodCostRow:
    """Median milliseconds of a step, median of paired ratios to cross entropy with quartiles, and parameters.

    `gflop` counts the floating-point operations of matrix products and convolutions in a step, forward and backward: a
    figure that no busy machine disturbs, and that leaves out everything else.
    """

    method: str
    network: str
    batch: int
    ms: float
    ratio: float
    low: float
    high: float
    gflop: float
    network_parameters: int
    extra_parameters: int


def measure_method_cost(
    methods: Sequence[str],
    model: str = "resnet32",
    *,
    batch_size: int = 64,
    rounds: int = 10,
    input_shape: tuple[int, ...] = (3, 32, 32),
    num_classes: int = 10,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[MethodCostRow]:
    """Steps of cross entropy and of `methods`, taking turns, at nine tenths of training, when every part is active.

    Methods that need metadata, groups or a second network are not for this.
    """
    if rounds < 2:
        raise InputError(f"rounds must be 2 or more, got {rounds}.")
    names = ["cross_entropy", *(name for name in methods if name not in ("cross_entropy", "ce"))]
    torch.manual_seed(0)
    inputs, targets = torch.randn(batch_size, *input_shape), torch.arange(batch_size) % num_classes
    batch = Batch(inputs, targets, None, torch.arange(batch_size))
    steps, sizes = {}, {}
    for name in names:
        network = create_model(model, num_classes, input_shape)
        steps[name], *sizes[name] = _prepared(name, network, batch, num_classes, dict((options or {}).get(name, {})))
    times = interleave(steps, rounds, warm_up=1)
    rows = []
    for name in names:
        ratios = [b / a for a, b in zip(times["cross_entropy"], times[name], strict=True)]
        low, middle, high = (round(value, 3) for value in statistics.quantiles(ratios, n=4, method="inclusive"))
        milliseconds = round(1e3 * statistics.median(times[name]), 2)
        gflop = round(count_operations(steps[name]) / 1e9, 4)
        rows.append(MethodCostRow(name, model, batch_size, milliseconds, middle, low, high, gflop, *sizes[name]))
    return rows


def _prepared(
    name: str, network: FeatureClassifier, batch: Batch, classes: int, options: dict[str, Any]
) -> tuple[Step, int, int]:
    """A step of the method on its network, the network's parameters and those the method adds."""
    counts, shape = torch.bincount(batch.targets, minlength=classes), tuple(batch.inputs.shape[1:])
    setup = Setup(classes, network.feature_dim, counts, epochs=10, num_samples=batch.num_samples, input_shape=shape)
    method = create_method(name, setup, options)
    network = method.prepare_network(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)

    def apply(loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    lists = ([network], [network], [optimizer], apply, lambda: iter([batch]))
    context = Context(*lists, epoch=9, num_epochs=10, progress=0.9, draw=lambda sampling: batch)
    method.on_stage_start(context)
    sizes = (sum(value.numel() for value in part.parameters()) for part in (network, method))
    return partial(method.train().step, batch, context), *sizes  # type: ignore[return-value]
