import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.loader import balanced_weights
from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.group_dro import Upweighting
from icda.models.base import Output
from support import make_context

GROUPS = torch.tensor([0] * 9 + [1] * 2 + [3] * 4)  # group 2 has no training sample
TARGETS = torch.tensor([0, 1, 2] * 5)
SETUP = Setup(3, 4, torch.tensor([5, 5, 5]), epochs=2, num_samples=15, group_counts=torch.tensor([9, 2, 0, 4]))
CONTEXT = make_context()


def whole_set() -> tuple[Output, Batch]:
    logits = torch.randn(15, 3, dtype=torch.float64, requires_grad=True)
    return Output(torch.zeros(15, 4), logits), Batch(torch.zeros(15, 4), TARGETS, GROUPS, torch.arange(15))


def mean_over_groups(logits: Tensor) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for group in (0, 1, 3):
        rows = [i for i in range(15) if int(GROUPS[i]) == group]
        for i in rows:
            total = total - logits[i].log_softmax(0)[TARGETS[i]] / len(rows)
    return total / 3


def test_weights_on_the_loss_make_it_the_mean_over_groups_of_their_mean_losses() -> None:
    output, batch = whole_set()
    method = Upweighting(SETUP, weighting="loss")
    # Weights are kept in float32.
    torch.testing.assert_close(method.loss(output, batch, CONTEXT), mean_over_groups(output.logits), rtol=0, atol=1e-6)


def test_sampling_has_the_expected_gradient_of_the_weights_on_the_loss() -> None:
    output, batch = whole_set()
    drawn = balanced_weights(GROUPS)
    expected = torch.zeros(15, 3, dtype=torch.float64)
    method = Upweighting(SETUP)
    for i in range(15):
        one = Output(output.features[[i]], output.logits[[i]])
        value = method.loss(one, Batch(batch.inputs[[i]], TARGETS[[i]], GROUPS[[i]], torch.tensor([i])), CONTEXT)
        (slope,) = torch.autograd.grad(value, [output.logits])
        expected += drawn[i] / drawn.sum() * slope
    weighted = Upweighting(SETUP, weighting="loss").loss(output, batch, CONTEXT)
    (found,) = torch.autograd.grad(weighted, [output.logits])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


def test_with_groups_of_equal_size_weights_on_the_loss_are_cross_entropy() -> None:
    output, batch = whole_set()
    even = Setup(3, 4, torch.ones(3), epochs=2, num_samples=20, group_counts=torch.tensor([5, 5, 5, 5]))
    assert torch.equal(
        Upweighting(even, weighting="loss").loss(output, batch, CONTEXT), F.cross_entropy(output.logits, TARGETS)
    )


def test_a_group_without_samples_changes_nothing() -> None:
    present = Setup(3, 4, torch.ones(3), epochs=2, num_samples=15, group_counts=torch.tensor([9, 2, 4]))
    without = Upweighting(present, weighting="loss").group_weights
    found = Upweighting(SETUP, weighting="loss").group_weights
    assert torch.equal(found[[0, 1, 3]], without)
    assert found[2] == 0
    assert float(found[GROUPS].mean()) == pytest.approx(1)
