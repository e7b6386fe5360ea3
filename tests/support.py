"""What tests of several rooms make or read: contexts, small networks, batches, tables of a page. Fixtures: conftest.py."""

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from icda.data.task import Batch
from icda.methods import Context
from icda.models.base import FeatureClassifier, Output


def make_context(
    *models: FeatureClassifier,
    rate: float | None = None,
    optimizers: Sequence[torch.optim.Optimizer] = (),
    data: tuple[Tensor, ...] = (),
    **settings: Any,
) -> Context:
    """A context as the trainer lends it.

    With `rate` (SGD) or `optimizers` `apply` takes a step, else it does nothing. `data` are the inputs, targets and, if
    there are any, groups of the training set, which come seven samples at a time.
    """
    optimizers = [torch.optim.SGD(model.parameters(), lr=rate) for model in models] if rate is not None else optimizers

    def apply(loss: Tensor) -> None:
        for optimizer in optimizers:
            optimizer.zero_grad()
        if optimizers:
            loss.backward()
        for optimizer in optimizers:
            optimizer.step()

    given = {"apply": apply, "training_batches": lambda: batches_of(*data), **settings}
    return Context(list(models), list(models), optimizers, **given)


def batches_of(inputs: Tensor | None = None, targets: Tensor | None = None, groups: Any = None) -> Iterator[Batch]:
    for rows in torch.arange(0 if inputs is None else len(inputs)).split(7):
        if len(rows):
            assert inputs is not None
            assert targets is not None
            yield Batch(inputs[rows], targets[rows], None if groups is None else groups[rows], rows)


def make_network(classes: int = 3, dropout: float = 0.5) -> FeatureClassifier:
    """Four inputs, five features, with BatchNorm and dropout, which act otherwise in evaluation mode."""
    return FeatureClassifier(
        nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(dropout)), nn.Linear(5, classes)
    )


def make_grouped(groups: Sequence[int], seed: int, scale: float = 1.0) -> tuple[Output, Batch]:
    """Random features (N, 4), logits (N, 3) and targets in float64, for samples of given groups."""
    generator, count = torch.Generator().manual_seed(seed), len(groups)
    features = torch.randn(count, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    logits = (scale * torch.randn(count, 3, generator=generator, dtype=torch.float64)).requires_grad_()
    targets = torch.randint(3, (count,), generator=generator)
    return Output(features, logits), Batch(features, targets, torch.tensor(groups), torch.arange(count))


def column(page: Any, table: str, position: int) -> list[str]:
    """Texts of a column's cells in the rows that are shown, of a page in a browser."""
    return page.evaluate(
        """([table, position]) => [...document.querySelectorAll(`${table} tbody tr:not(.filtered)`)]
             .map(row => row.cells[position].textContent.trim())""",
        [table, position],
    )


def load_module(file: Path, name: str) -> ModuleType:
    """The module in a file that no package holds, such as a tool's."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
