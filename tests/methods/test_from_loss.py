from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from icda.data.task import Batch
from icda.losses import LOSSES
from icda.methods import Setup, create_method
from icda.models.base import Output

SETUP = Setup(num_classes=3, feature_dim=4, class_counts=torch.tensor([5, 3, 1]), epochs=2, num_samples=9)


@pytest.mark.parametrize("name", list(LOSSES))
def test_the_loss_of_a_method_is_the_loss_itself_at_the_progress_of_training(name: str) -> None:
    head, features = nn.Linear(4, 3), torch.randn(8, 4)
    batch = Batch(None, torch.arange(8) % 3, None, torch.arange(8))
    context: Any = SimpleNamespace(head=head, progress=0.7)
    method, loss = create_method(name, SETUP), LOSSES.get(name)(3, 4, SETUP.class_counts)
    for _ in range(2):  # the second call sees the statistics of the first
        found = method.loss(Output(features, head(features)), batch, context)
        torch.testing.assert_close(found, loss(features, batch.targets, head, 0.7))


def _epoch(name: str) -> dict[str, Any]:
    head, features = nn.Linear(4, 3), torch.randn(9, 4)
    batch = Batch(None, torch.arange(9) % 3, None, torch.arange(9))
    method = create_method(name, SETUP)
    context: Any = SimpleNamespace(head=head, progress=0.5)
    method.loss(Output(features, head(features)), batch, context)
    method.on_epoch_end(context)
    return method.epoch_figures()


@pytest.mark.parametrize("name", ["isda", "risda", "icda"])
def test_a_loss_with_statistics_logs_mapped_variances_every_epoch(name: str) -> None:
    figures = _epoch(name)
    assert set(figures) == {"mapped_variance_own", "mapped_variance_unrelated"}
    assert all(isinstance(value, float) and value > 0 for value in figures.values())


def test_a_loss_without_statistics_logs_none() -> None:
    assert _epoch("cross_entropy") == {}
