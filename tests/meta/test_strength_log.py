"""Mean strengths by class and group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from icda.meta.strength_network import StrengthLog

CLASSES, GROUPS = 4, 3


def draws(seed: int, size: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    """Strengths, targets that leave the last class out, and groups."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(CLASSES - 1, (size,), generator=generator)
    return torch.rand(size, generator=generator), targets, torch.randint(GROUPS, (size,), generator=generator)


def mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def reference(batches: list[tuple[Tensor, Tensor, Tensor]]) -> dict[str, Any]:
    rows = [row for batch in batches for row in zip(*(part.tolist() for part in batch), strict=True)]
    return {
        "strength_mean": mean([strength for strength, _, _ in rows]),
        "strength_by_class": [mean([s for s, y, _ in rows if y == c]) for c in range(CLASSES)],
        "strength_by_group": [mean([s for s, _, g in rows if g == group]) for group in range(GROUPS)],
    }


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        values, figures = (entry if isinstance(entry, list) else [entry] for entry in (found[name], value))
        for mine, other in zip(values, figures, strict=True):
            assert (mine is None) == (other is None)
            assert mine is None or mine == pytest.approx(other, rel=1e-6)


def test_means_are_those_of_all_samples_and_none_where_there_are_none() -> None:
    log, batches = StrengthLog(CLASSES, GROUPS), [draws(1), draws(2, size=5)]
    for batch in batches:
        log.add(*batch)
    figures = log.take()
    assert figures["strength_by_class"][-1] is None
    same(figures, reference(batches))


def test_taking_the_means_starts_a_new_epoch() -> None:
    log = StrengthLog(CLASSES, GROUPS)
    log.add(*draws(1))
    log.take()
    assert log.take() == {}
    log.add(*draws(2))
    same(log.take(), reference([draws(2)]))


def test_groups_are_left_out_where_none_are_known() -> None:
    strengths, targets, groups = draws(1)
    known, withheld = StrengthLog(CLASSES, 0), StrengthLog(CLASSES, 0)
    known.add(strengths, targets, groups)
    withheld.add(strengths, targets)
    for log in (known, withheld):
        figures = log.take()
        assert figures.keys() == {"strength_mean", "strength_by_class"}


def test_state_taken_within_an_epoch_reports_the_whole_of_it() -> None:
    first, second = (StrengthLog(CLASSES, GROUPS) for _ in range(2))
    first.add(*draws(1))
    second.load_state_dict(first.state_dict())
    second.add(*draws(2))
    same(second.take(), reference([draws(1), draws(2)]))


def log_on_rank(rank: int) -> dict[str, Any]:
    """Half of every batch; in between the first rank's state replaces that of all, as on resuming."""
    log = StrengthLog(CLASSES, GROUPS)
    log.add(*(part[rank::2] for part in draws(1)))
    states = [None, None]
    torch.distributed.all_gather_object(states, log.state_dict())
    log.load_state_dict(states[0])
    log.add(*(part[rank::2] for part in draws(2, size=9)))
    return log.take()


def test_two_ranks_report_the_means_of_one_process_even_when_resumed(run_on_ranks: Callable[..., list[Any]]) -> None:
    for figures in run_on_ranks(log_on_rank):
        same(figures, reference([draws(1), draws(2, size=9)]))
