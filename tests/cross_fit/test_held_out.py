"""The mean over repeats of what networks say."""

from __future__ import annotations

import pytest
import torch

from icda.cross_fit import HeldOut, averaged


def test_repeats_count_the_same_and_the_last_one_is_kept_beside_their_mean() -> None:
    targets = torch.tensor([0, 1, 1])
    answers = [torch.randn(3, 2, generator=torch.Generator().manual_seed(k)) for k in range(3)]
    mean = None
    for number, logits in enumerate(answers):
        mean = averaged(mean, HeldOut(logits, targets, 0.5 + 0.1 * number), number)
    assert mean is not None
    for i in range(3):
        for c in range(2):
            expected = sum(float(logits[i, c]) for logits in answers) / 3
            assert float(mean.logits[i, c]) == pytest.approx(expected, abs=1e-6)
    assert mean.agreement == pytest.approx(0.6)
    assert mean.last is answers[-1]


def test_a_single_pass_stays_as_it_is() -> None:
    only = HeldOut(torch.eye(2), torch.arange(2), 0.9)
    assert averaged(None, only, 0) is only
