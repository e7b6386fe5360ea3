from dataclasses import replace

import pytest
import torch

from icda.auditing import plan
from icda.auditing.evidence import SAMPLES
from icda.auditing.plan import chosen_decay
from icda.errors import InputError
from icda.heads.cross_fit import (
    FACTORS,
    LEAST_GAIN,
    balanced_share,
    choose_decay,
    cross_fitted_logits,
    cross_fitted_strength,
    folds_of_strata,
)
from icda.heads.problem import LossSettings, Problem, rebalance
from icda.heads.solver import fit_head

SETTINGS = LossSettings("la")


def make_problem():
    generator = torch.Generator().manual_seed(1)
    targets = torch.arange(90) % 3
    features = torch.randn(90, 5, generator=generator, dtype=torch.float64) + targets[:, None] * 0.5
    return Problem.plain(features, targets, 3, 0.01)


def test_folds_spread_every_stratum_evenly():
    strata = torch.tensor([0] * 11 + [1] * 7 + [2] * 3)
    fold = folds_of_strata(strata, folds=3, seed=4)
    for label, size in ((0, 11), (1, 7), (2, 3)):
        counts = torch.bincount(fold[strata == label], minlength=3)
        assert int(counts.sum()) == size
        assert int(counts.max() - counts.min()) <= 1


def test_another_seed_cuts_other_folds_and_the_same_seed_the_same():
    strata = torch.arange(60) % 2
    assert torch.equal(folds_of_strata(strata, 5, 1), folds_of_strata(strata, 5, 1))
    assert not torch.equal(folds_of_strata(strata, 5, 1), folds_of_strata(strata, 5, 2))


def test_a_sample_is_judged_by_a_head_that_has_not_seen_it():
    problem = make_problem()
    logits = cross_fitted_logits(problem, LossSettings("ce"), problem.targets, folds=4, seed=3)
    fold = folds_of_strata(problem.targets, 4, 3)
    head = fit_head(problem.rows(fold != 2), LossSettings("ce"), 100, 1e-3)
    torch.testing.assert_close(logits[fold == 2], head.logits(problem.features[fold == 2]))


def test_heads_fitted_together_have_the_optimum_of_heads_fitted_one_by_one():
    problem = make_problem()
    one_by_one, side_by_side = (
        cross_fitted_logits(problem, LossSettings("ce"), problem.targets, 4, max_iter=500, tol=1e-9, together=together)
        for together in (False, True)
    )
    torch.testing.assert_close(side_by_side, one_by_one, atol=1e-6, rtol=0)


def test_the_counts_add_no_second_prior_to_samples_that_bring_one():
    """Logit adjustment adds the prior of the class counts, cross entropy none: with a log_prior they are the same."""
    generator = torch.Generator().manual_seed(2)
    targets = (torch.rand(200, generator=generator) < 0.15).long()
    features = torch.randn(200, 4, generator=generator, dtype=torch.float64) + targets[:, None]
    plain = Problem.plain(features, targets, 2, 0.01)
    problem = rebalance(plain, torch.arange(200) % 2, "prior")
    found, wanted = (cross_fitted_logits(problem, LossSettings(name), targets, tol=1e-6) for name in ("la", "ce"))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-3)
    without = cross_fitted_logits(plain, LossSettings("ce"), targets, tol=1e-6)
    assert float((wanted - without).abs().max()) > 0.5


def test_cross_fitted_strength_is_zero_at_the_target_and_sums_to_the_sample_strength():
    targets = torch.tensor([0, 2, 1])
    strength = cross_fitted_strength(torch.randn(3, 4), targets)
    assert (strength.per_class.gather(1, targets[:, None]) == 0).all()
    torch.testing.assert_close(strength.per_class.sum(1), strength.per_sample)


def problem_of(noise, decay, count=400):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(count, 12, generator=generator)
    targets = (features[:, 0] + 0.3 * features[:, 1] > 1.2).long()
    flips = torch.rand(count, generator=generator) < noise
    targets = torch.where(flips, 1 - targets, targets)
    return Problem.plain(features, targets, 2, decay)


@pytest.mark.parametrize(("noise", "decay"), [(0.0, 1.0), (0.3, 0.02), (0.0, 1e-3)])
def test_it_is_the_first_that_no_later_one_beats_by_enough(noise, decay):
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


def test_too_strong_a_decay_gives_way_and_noise_keeps_it():
    assert choose_decay(problem_of(0.0, 1.0), SETTINGS, problem_of(0.0, 1.0).targets).decay < 1.0
    noisy = problem_of(0.3, 0.05, 120)
    assert choose_decay(noisy, SETTINGS, noisy.targets).decay == 0.05


def test_all_rows_share_the_c_of_the_sample_and_very_many_features_keep_the_decay(monkeypatch):
    sample = problem_of(0.0, 1.0)
    chosen = choose_decay(sample, SETTINGS, sample.targets).decay
    assert chosen_decay(sample, SETTINGS, sample.targets, 10 * SAMPLES, 0) == pytest.approx(chosen / 10)
    assert chosen_decay(sample, SETTINGS, sample.targets, 401, 0) == chosen, "all rows were asked about, or nearly"
    monkeypatch.setattr(plan, "MOST_NUMBERS", 400 * 12 - 1)
    assert chosen_decay(sample, SETTINGS, sample.targets, 4000, 0) == sample.decay


def test_strata_without_samples_do_not_count():
    assert balanced_share(torch.tensor([True, False, True]), torch.tensor([0, 5, 5])) == 0.75


@pytest.mark.parametrize("decay", [1e300, float("inf"), float("nan"), -1.0])
def test_a_decay_that_the_features_cannot_hold_is_refused(decay):
    with pytest.raises(InputError, match="choose a larger C"):
        fit_head(replace(problem_of(0.0, 1.0), decay=decay), SETTINGS)
