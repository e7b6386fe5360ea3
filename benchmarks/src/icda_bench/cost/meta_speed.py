"""What a look-ahead costs: exact forms and the textbook's double backward beside plain cross entropy."""

import math
import statistics
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from icda.data.task import Batch
from icda.losses import ICDALoss
from icda.meta import Forward
from icda.methods.meta_loop import MetaICDA
from icda.models import create_model
from icda.models.base import FeatureClassifier
from icda_bench.cost.measures import Ratios, Step, count_operations, interleave, matrix_rate, peak_bytes
from icda_bench.cost.speed import training_steps
from icda_bench.rows import Row


def measure_meta_speed(model: str, batch_size: int, classes: int, rounds: int) -> list[Row]:
    """Cross entropy, every way of looking ahead and double backward, interleaved in one process: median milliseconds,
    ratio to cross entropy, ratio of peak memory.

    `gflop` counts matrix products and convolutions, of which `limit_ratio` is the ratio to those of cross entropy: what the
    time's ratio would be if nothing else took time. `limit_ms` is their time at the machine's rate of matrix products.
    """
    torch.manual_seed(0)
    batch, metadata = (_batch(batch_size, classes) for _ in range(2))
    half = (metadata[0][: batch_size // 2], metadata[1][: batch_size // 2])
    steps: dict[str, Step] = {"cross entropy": training_steps(model, classes, batch_size)[0]["ce"]}
    for way in ("head", "full", "difference"):
        steps[way] = partial(_meta_step, _learner(model, classes, lookahead=way), batch, metadata)
    for way in ("full", "difference"):
        steps[f"{way}, half metadata"] = partial(_meta_step, _learner(model, classes, lookahead=way), batch, half)
    steps["full, every 5th"] = partial(_meta_step, _learner(model, classes, lookahead="full", every=5), batch, metadata)
    steps["double backward"] = partial(_textbook_step, _learner(model, classes, lookahead="full"), batch, metadata)
    times = interleave(steps, 5 * math.ceil(rounds / 5), warm_up=1)  # whole cycles of "every 5th"
    base = times["cross entropy"]
    memory = {name: peak_bytes(partial(_cycle, step) if "every" in name else step) for name, step in steps.items()}
    operations = {name: count_operations(step) / 1e9 for name, step in steps.items() if "every" not in name}
    rate = matrix_rate()
    rows: list[Row] = []
    for name, seconds in times.items():
        ratios = Ratios.of(base, seconds)
        # A step that looks ahead now and then is as dear as its mean.
        ratio = statistics.mean(seconds) / statistics.mean(base) if "every" in name else ratios.middle
        middle = statistics.mean(seconds) if "every" in name else statistics.median(seconds)
        gflop = operations.get(name)
        rows.append(
            {
                **{"what": model, "way": name, "classes": classes, "batch": batch_size},
                "ms": round(1e3 * middle, 1),
                "ratio": round(ratio, 3),
                "memory_ratio": round(memory[name] / memory["cross entropy"], 2),
                "quartiles": "" if gflop is None else ratios.text(),
                "gflop": None if gflop is None else round(gflop, 3),
                "limit_ratio": None if gflop is None else round(gflop / operations["cross entropy"], 3),
                "limit_ms": None if gflop is None else round(1e12 * gflop / rate, 1),
            }
        )
    return rows


def _cycle(step: Step) -> None:
    """As many steps as it takes "every 5th" to look ahead once."""
    for _ in range(5):
        step()


def _network(name: str, classes: int) -> FeatureClassifier:
    return create_model(name, classes, (3, 32, 32)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _batch(size: int, classes: int) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(size, 3, 32, 32).to(memory_format=torch.channels_last)
    return inputs, torch.arange(size) % classes


def _learner(name: str, classes: int, **options: Any) -> MetaICDA:
    network = _network(name, classes)
    loss = ICDALoss(classes, network.feature_dim, torch.full((classes,), 100))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    return MetaICDA(network, loss, optimizer=optimizer, **options)


def _meta_step(learner: MetaICDA, batch: tuple[Tensor, Tensor], metadata: tuple[Tensor, Tensor]) -> None:
    learner.step(batch, metadata, progress=0.5)


def _textbook_step(learner: MetaICDA, pair: tuple[Tensor, Tensor], metadata: tuple[Tensor, Tensor]) -> None:
    """The same step with `create_graph=True` through the network, as the peers do it."""
    method, context = learner.method, learner.context
    context.progress = 0.5
    model = context.models[0]
    batch = Batch(*pair, None, torch.arange(len(pair[1])))
    forward = Forward.of(model, batch.inputs)
    output: Any = forward.output
    method.observe(output, batch, context)
    tensors, inner = method.outer(output, batch, context)
    parameters = dict(model.named_parameters())
    loss = inner(output.logits, parameters["head.weight"])
    slopes = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
    moved = {name: p - 1e-3 * g for (name, p), g in zip(parameters.items(), slopes, strict=True)}
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    logits = functional_call(model, (moved, buffers), (metadata[0],)).logits
    meta_loss = F.cross_entropy(logits, metadata[1])
    gradients = torch.autograd.grad(
        meta_loss, list(tensors), retain_graph=True, allow_unused=True, materialize_grads=True
    )
    method.correct(tensors, gradients, context)
    context.apply(method.loss(output, batch, context))
