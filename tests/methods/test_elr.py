"""ELR against its formula, visit by visit."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.elr import ELR
from icda.models.base import Output
from support import make_context

SETUP = Setup(num_classes=3, feature_dim=5, class_counts=torch.tensor([4, 4, 4]), epochs=2, num_samples=12)
TARGETS = torch.arange(12) % 3


def visit(method: ELR, logits: Tensor, rows: Tensor) -> Tensor:
    return method.loss(Output(logits, logits), Batch(logits, TARGETS[rows], None, rows), make_context())


def test_loss_and_running_means_are_those_of_the_paper() -> None:
    method, means = ELR(SETUP, weight=3.0, momentum=0.7).double(), torch.zeros(12, 3, dtype=torch.double)
    generator = torch.Generator().manual_seed(0)
    for rows in (torch.arange(0, 8), torch.arange(4, 12), torch.arange(0, 12)):
        logits = (2 * torch.randn(len(rows), 3, generator=generator)).double()
        wanted = 0.0
        for i, row in enumerate(rows.tolist()):
            p = logits[i].float().softmax(0).double()
            means[row] = 0.7 * means[row] + 0.3 * p / p.sum()
            wanted += -math.log(p[TARGETS[row]]) + 3.0 * math.log(1 - float(p @ means[row]))
        found = visit(method, logits, rows)
        assert float(found) == pytest.approx(wanted / len(rows), rel=1e-5)
        torch.testing.assert_close(method.means, means, rtol=1e-5, atol=1e-6)


def test_without_weight_it_is_cross_entropy() -> None:
    logits = torch.randn(12, 3)
    found = visit(ELR(SETUP, weight=0.0), logits, torch.arange(12))
    torch.testing.assert_close(found, F.cross_entropy(logits, TARGETS))


def test_a_network_that_always_disagreed_with_a_label_is_pulled_back_from_it() -> None:
    method = ELR(SETUP)
    answers = F.one_hot((TARGETS + 1) % 3, 3) * 8.0  # never the label
    for _ in range(10):
        visit(method, answers, torch.arange(12))
    logits = torch.zeros(12, 3, requires_grad=True)
    visit(method, logits, torch.arange(12)).backward()
    assert logits.grad is not None
    towards_label = -logits.grad.gather(1, TARGETS[:, None])
    plain = torch.zeros(12, 3, requires_grad=True)
    F.cross_entropy(plain, TARGETS).backward()
    assert plain.grad is not None
    assert (towards_label < -plain.grad.gather(1, TARGETS[:, None])).all()


def test_an_answer_that_is_certain_leaves_the_loss_finite() -> None:
    method = ELR(SETUP)
    for _ in range(50):
        loss = visit(method, F.one_hot(TARGETS, 3) * 1e4, torch.arange(12))
    assert torch.isfinite(loss)
