"""The weight decay that is chosen by cross-fitting."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from icda.auditing import plan
from icda.auditing.evidence import SAMPLES
from icda.auditing.plan import chosen_decay
from icda.errors import InputError
from icda.heads.cross_fit import FACTORS, LEAST_GAIN, balanced_share, choose_decay, cross_fitted_logits
from icda.heads.problem import LossSettings, Problem
from icda.heads.solver import fit_head

SETTINGS = LossSettings("la")


def problem_of(noise: float, decay: float, count: int = 400) -> Problem:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(count, 12, generator=generator)
    targets = (features[:, 0] + 0.3 * features[:, 1] > 1.2).long()
    flips = torch.rand(count, generator=generator) < noise
    targets = torch.where(flips, 1 - targets, targets)
    ones = torch.ones(count)
    return Problem(features, targets, 2, ones, ones, torch.bincount(targets).double(), decay)


@pytest.mark.parametrize(("noise", "decay"), [(0.0, 1.0), (0.3, 0.02), (0.0, 1e-3)])
def test_it_is_the_first_that_no_later_one_beats_by_enough(noise: float, decay: float) -> None:
    problem = problem_of(noise, decay)
    rights = []
    for factor in FACTORS:
        tried = replace(problem, decay=factor * decay)
        rights.append(cross_fitted_logits(tried, SETTINGS, problem.targets).argmax(1) == problem.targets)
    best = 0
    for k in range(1, len(FACTORS)):
        gain, variance = 0.0, 0.0
        for i, target in enumerate(problem.targets.tolist()):
            share = 0.5 / int((problem.targets == target).sum())
            step = share * (int(rights[k][i]) - int(rights[best][i]))
            gain, variance = gain + step, variance + step**2
        if gain > max(LEAST_GAIN, variance**0.5):
            best = k
    assert choose_decay(problem, SETTINGS, problem.targets).decay == FACTORS[best] * decay


def test_too_strong_a_decay_gives_way_and_noise_keeps_it() -> None:
    assert choose_decay(problem_of(0.0, 1.0), SETTINGS, problem_of(0.0, 1.0).targets).decay < 1.0
    noisy = problem_of(0.3, 0.05, 120)
    assert choose_decay(noisy, SETTINGS, noisy.targets).decay == 0.05


def test_all_rows_share_the_c_of_the_sample_and_very_many_features_keep_the_decay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sample = problem_of(0.0, 1.0)
    chosen = choose_decay(sample, SETTINGS, sample.targets).decay
    assert chosen_decay(sample, SETTINGS, sample.targets, 10 * SAMPLES, 0) == pytest.approx(chosen / 10)
    assert chosen_decay(sample, SETTINGS, sample.targets, 401, 0) == chosen, "all rows were asked about, or nearly"
    monkeypatch.setattr(plan, "MOST_NUMBERS", 400 * 12 - 1)
    assert chosen_decay(sample, SETTINGS, sample.targets, 4000, 0) == sample.decay


def test_strata_without_samples_do_not_count() -> None:
    assert balanced_share(torch.tensor([True, False, True]), torch.tensor([0, 5, 5])) == 0.75


@pytest.mark.parametrize("decay", [1e300, float("inf"), float("nan"), -1.0])
def test_a_decay_that_the_features_cannot_hold_is_refused(decay: float) -> None:
    with pytest.raises(InputError, match="choose a larger C"):
        fit_head(problem_of(0.0, decay), SETTINGS)
