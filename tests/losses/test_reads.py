"""A step reads from the device once, or not at all: each read would stop its queue."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from icda import ICDALoss
from icda.losses import LOSSES

C, A, N = 6, 5, 24
READS = ("_local_scalar_dense", "nonzero", "unique", "is_nonzero", "equal", "eigh", "masked_select", "_unique2")


class Reads(TorchDispatchMode):
    """Counts operators whose result the host has to wait for, and tensors that it asks for as lists."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if any(name == read or name.startswith("_linalg_" + read) for read in READS):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def count_reads(loss, monkeypatch, targets, **given):
    features, head = torch.randn(N, A, requires_grad=True), nn.Linear(A, C)
    loss(features, targets, head, 0.5, **given)
    with Reads() as reads:
        lists = torch.Tensor.tolist
        monkeypatch.setattr(torch.Tensor, "tolist", lambda self: (reads.found.append("tolist"), lists(self))[1])
        loss(features, targets, head, 0.5, **given).sum().backward()
        monkeypatch.undo()
    return reads.found


SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "diagonal": ({"covariance": "diagonal"}, {}),
    "full": ({"covariance": "full"}, {}),
    "prior table": ({"prior": torch.ones(2, C)}, {"attributes": torch.arange(N) % 2}),
    "log_prior": ({}, {"log_prior": torch.randn(N, C)}),
    "smoothing and class weights": ({"label_smoothing": 0.1, "class_weight": torch.ones(C)}, {}),
    "logits": ({}, {"logits": torch.randn(N, C)}),
}


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_step_reads_once_and_unvalidated_never(name, validate, monkeypatch):
    options, given = SETTINGS[name]
    loss = ICDALoss(C, A, torch.arange(1, C + 1), validate=validate, **options)
    assert len(count_reads(loss, monkeypatch, torch.arange(N) % C, **given)) == int(validate)


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_a_progress_on_the_device_is_not_read(covariance, monkeypatch):
    loss = ICDALoss(C, A, covariance=covariance, validate=False)
    features, head, targets = torch.randn(N, A, requires_grad=True), nn.Linear(A, C), torch.arange(N) % C
    with Reads() as reads:
        loss(features, targets, head, torch.tensor(0.5)).backward()
    assert reads.found == []


@pytest.mark.parametrize("validate", [True, False])
def test_ignored_samples_cost_no_further_read(validate, monkeypatch):
    targets = torch.where(torch.arange(N) < 3, -100, torch.arange(N) % C)
    loss = ICDALoss(C, A, torch.arange(1, C + 1), validate=validate)
    assert len(count_reads(loss, monkeypatch, targets)) == int(validate)
    assert loss.statistics.count.sum() == 2 * (N - 3)


@pytest.mark.parametrize("validate", [True, False])
def test_low_rank_covariances_take_one_decomposition_for_all_classes(validate, monkeypatch):
    found = count_reads(
        ICDALoss(C, A, covariance="low_rank", rank=2, validate=validate), monkeypatch, torch.arange(N) % C
    )
    assert sum("eigh" in name for name in found) == 1
    assert len(found) == 1 + int(validate)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_no_loss_reads_more_than_once(name, monkeypatch):
    loss = LOSSES.get(name)(C, A, torch.arange(1, C + 1))
    assert len(count_reads(loss, monkeypatch, torch.arange(N) % C)) <= 1


@pytest.mark.parametrize("covariance", ["full", "diagonal", "low_rank"])
@pytest.mark.parametrize("give_logits", [True, False])
def test_second_derivatives_are_those_of_the_plain_formula(covariance, give_logits):
    torch.manual_seed(0)
    loss = ICDALoss(C, A, torch.arange(1, C + 1), covariance=covariance).double()
    features, targets = torch.randn(N, A, dtype=torch.float64), torch.arange(N) % C
    head = nn.Linear(A, C).double()
    loss(features, targets, head)
    loss.eval()
    direction = torch.randn(C, A, dtype=torch.float64)

    def slope(weight: torch.Tensor) -> torch.Tensor:
        weight = weight.requires_grad_() if weight.is_leaf else weight
        logits = features @ weight.T if give_logits else None
        value = loss(features, targets, (weight, None), 0.7, logits)
        return torch.autograd.grad(value, weight, create_graph=True)[0]

    weight = head.weight.detach().clone().requires_grad_()
    (found,) = torch.autograd.grad((slope(weight) * direction).sum(), weight)
    # Strengths are constants of the loss, and move with the weight in a difference: both are looked at with them fixed.
    strength = loss.strength(features, targets, head.weight)
    moments = loss.statistics.moments()

    def plain(weight: torch.Tensor) -> torch.Tensor:
        phi = loss.combine(targets, weight, 0.7, strength, moments)
        return torch.autograd.grad(nn.functional.cross_entropy(features @ weight.T + phi, targets), weight)[0]

    step = 1e-5
    ends = [plain((head.weight + sign * step * direction).detach().requires_grad_()) for sign in (1, -1)]
    torch.testing.assert_close(found, (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-7)
