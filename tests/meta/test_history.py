"""What is remembered of a sample over the epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from icda.meta.characteristics import SampleHistory

EPOCHS, SAMPLES, CLASSES = 3, 7, 4


def answers() -> tuple[Tensor, Tensor]:
    """Logits (epochs, N, C) and labels."""
    torch.manual_seed(0)
    return 2 * torch.randn(EPOCHS, SAMPLES, CLASSES, dtype=torch.float64), torch.arange(SAMPLES) % CLASSES


def loss_and_margin(logits: list[float], label: int) -> tuple[float, float]:
    values = torch.tensor(logits, dtype=torch.float64)
    shares = values.exp() / values.exp().sum()
    others = [float(shares[c]) for c in range(len(logits)) if c != label]
    return -float(shares[label].log()), float(shares[label]) - max(others)


def test_means_are_those_of_all_epochs_and_of_what_is_said_now() -> None:
    logits, targets = answers()
    history = SampleHistory(SAMPLES).double()
    for epoch in range(EPOCHS - 1):
        for rows in torch.randperm(SAMPLES).split(3):  # in another order each time
            history.observe(logits[epoch, rows], targets[rows], rows)
    found = history(logits[-1], targets, torch.arange(SAMPLES))
    for i in range(SAMPLES):
        each = [loss_and_margin(logits[epoch, i].tolist(), int(targets[i])) for epoch in range(EPOCHS)]
        wanted = [sum(values) / EPOCHS for values in zip(*each, strict=True)]
        torch.testing.assert_close(found[i], torch.tensor(wanted, dtype=torch.float64), rtol=1e-12, atol=0)


def test_reading_changes_nothing() -> None:
    logits, targets = answers()
    history = SampleHistory(SAMPLES)
    history.observe(logits[0], targets, torch.arange(SAMPLES))
    first = history(logits[1], targets, torch.arange(SAMPLES))
    assert torch.equal(history(logits[1], targets, torch.arange(SAMPLES)), first)


def test_a_sample_with_another_label_or_number_has_its_present_figures() -> None:
    logits, targets = answers()
    history = SampleHistory(3).double()
    history.observe(logits[0, :3], targets[:3], torch.arange(3))
    now = SampleHistory(0).double()(logits[1], targets, torch.arange(SAMPLES))
    found = history(logits[1], targets, torch.arange(SAMPLES))
    assert torch.equal(found[3:], now[3:])
    assert not torch.isclose(found[:3], now[:3]).any()
    changed = (targets + 1) % CLASSES
    assert torch.equal(
        history(logits[1], changed, torch.arange(SAMPLES)), SampleHistory(0)(logits[1], changed, targets)
    )


def test_state_is_read_back_and_may_be_of_another_length() -> None:
    logits, targets = answers()
    history = SampleHistory(SAMPLES)
    history.observe(logits[0], targets, torch.arange(SAMPLES))
    other = SampleHistory(2)
    other.load_state_dict(history.state_dict())
    index = torch.arange(SAMPLES)
    assert torch.equal(other(logits[1], targets, index), history(logits[1], targets, index))


def on_rank(rank: int) -> dict[str, Any]:
    logits, targets = answers()
    history, rows = SampleHistory(SAMPLES), (torch.arange(5), torch.arange(5, SAMPLES))[rank]
    history.observe(logits[0, rows], targets[rows], rows)
    return {"sums": history.sums, "labels": history.labels}


def test_every_rank_remembers_the_samples_of_all(run_on_ranks: Callable[..., list[Any]]) -> None:
    logits, targets = answers()
    whole = SampleHistory(SAMPLES)
    whole.observe(logits[0], targets, torch.arange(SAMPLES))
    for rank in run_on_ranks(on_rank):
        assert torch.equal(rank["labels"], whole.labels)
        torch.testing.assert_close(rank["sums"], whole.sums, rtol=1e-6, atol=0)
