"""Planted cases: what was asked for is there, and nothing else."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from icda_bench.rows import read_table
from icda_bench.studies.features import FeaturePart
from icda_bench.studies.verdicts.cases import Plan, flipped, plant, tail_counts
from icda_bench.studies.verdicts.judge import evidence_of, regret_table, truth_of, verdict_table
from icda_bench.studies.verdicts.methods import fit_row, judge
from icda_bench.studies.verdicts.plans import fresh_plans, plans_of
from icda_bench.studies.verdicts.pools import framed, gaussian_pool, load_pool
from icda_bench.studies.verdicts.run import ALL, evidence_row, fill_cases


@pytest.fixture(scope="module")
def pool():
    generator = np.random.default_rng(0)
    targets = np.repeat([0, 1, 2, 3], 500)
    features = generator.normal(size=(2000, 12)).astype(np.float32) + 2 * np.eye(12, dtype=np.float32)[targets]
    return FeaturePart(features, targets, {"place": generator.integers(0, 2, 2000)}, painted=features + 100)


def test_a_clean_case_has_right_labels_and_disjoint_parts(pool):
    case = plant(pool, Plan("made", 800))
    assert (case.targets == case.clean_targets).all()
    rows = {row.tobytes() for row in case.features}
    assert len(rows) == len(case.features) == 800
    assert not rows & {row.tobytes() for row in case.test_features}


@pytest.mark.parametrize("attribute", ["direction", "place", "painted"])
@pytest.mark.parametrize("minority", [0.05, 0.1])
def test_the_minority_has_the_share_that_was_asked_for(pool, attribute, minority):
    case = plant(pool, Plan("made", 500, classes=2, attribute=attribute, minority=minority))
    assert ((case.features[:, 0] > 50) == ((case.attributes == 1) & (attribute == "painted"))).all()
    against = case.attributes != case.targets % 2
    assert against.mean() == pytest.approx(minority, abs=0.03)
    test_attributes = case.test_groups % 2
    assert (test_attributes != case.test_targets % 2).mean() == pytest.approx(0.5, abs=0.1)


def test_a_planted_direction_moves_each_value_by_one_vector(pool):
    plan = Plan("made", 500, classes=2, attribute="direction", minority=0.1, strength=6.0)
    moved, plain = plant(pool, plan), plant(replace(pool, features=np.zeros_like(pool.features)), plan)
    assert np.ptp(plain.features, axis=0).max() == 0  # constant features have no deviation to scale by
    scale = pool.features[np.isin(pool.targets, [0, 1, 2, 3])].std(0)
    means = [moved.features[moved.attributes == value].mean(0) / scale for value in (0, 1)]
    assert np.linalg.norm(means[0] - means[1]) > 4


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.4])
def test_as_many_labels_are_flipped_as_asked_and_all_to_another_class(rate):
    clean = np.arange(1000) % 5
    for flips in ("symmetric", "next"):
        noisy = flipped(clean, rate, flips, np.random.default_rng(0))
        assert (noisy != clean).sum() == 1000 * rate
    assert set((noisy - clean)[noisy != clean] % 5) == {1}


def test_tails_fall_by_one_factor(pool):
    case = plant(pool, Plan("made", 2000, tail=10.0))
    counts = np.bincount(case.targets)
    assert counts.max() / counts.min() == pytest.approx(10, rel=0.1)
    assert tail_counts(100, 100, 1).tolist() == [100]


def test_classes_can_be_drawn_or_merged(pool):
    assert len(np.unique(plant(pool, Plan("made", 300, classes=3)).targets)) == 3
    merged = plant(pool, Plan("made", 900, classes=2, merged=True))
    assert np.bincount(merged.targets).min() > 300


def test_the_same_plan_gives_the_same_case_and_another_seed_another(pool):
    plan = Plan("made", 300, attribute="direction", minority=0.1, noise=0.1, seed=3)
    first, second, third = plant(pool, plan), plant(pool, plan), plant(pool, replace(plan, seed=4))
    assert (first.features == second.features).all()
    assert (first.targets == second.targets).all()
    assert first.features.shape != third.features.shape or (first.features != third.features).any()


@pytest.mark.parametrize("name", ["digits", "waterbirds", "adult", "gaussian0"])
def test_every_pool_has_every_kind_and_pair(name):
    plans = plans_of(name)
    kinds = {"clean", "shortcut", "noise", "tail", "shortcut+noise", "shortcut+tail", "noise+tail"}
    assert {plan.kind for plan in plans[:7]} == kinds
    assert len({plan.seed for plan in plans}) == len(plans)
    assert name in ALL


def test_synthetic_pools_follow_from_their_seed():
    first, second = gaussian_pool(1, 200), gaussian_pool(1, 200)
    assert (first.features == second.features).all()
    assert first.features.shape != gaussian_pool(0, 200).features.shape


def test_a_row_of_the_file_gives_the_evidence_back(tmp_path):
    path, plans = tmp_path / "verdicts.csv", {"digits": plans_of("digits")[:3]}
    fill_cases(path, plans, evidence_row)
    again = fill_cases(path, plans, lambda case: pytest.fail("measured twice"))
    assert len(again) == 3
    for row in read_table(path):
        evidence = evidence_of(row)
        assert evidence.ratio == pytest.approx(float(row["ratio"]), rel=0.1)
        assert len(evidence.pairs) == len(row["pair_samples"].split(";"))
    assert truth_of(read_table(path)[2]) == {"shortcut": False, "label_noise": True, "long_tail": False}
    assert "| wrong labels | 1 |" in verdict_table(again)


def test_all_heads_are_judged_on_the_unbiased_part(pool):
    plan = Plan("made", 600, classes=2, attribute="direction", minority=0.05, strength=8.0)
    row = fit_row(plant(pool, plan))
    assert float(row["oracle_worst"]) > float(row["ce_worst"])
    assert "robust" in regret_table([{**asdict(plan), **row}])


def test_small_groups_are_not_asked_for():
    right, targets = np.array([1] * 12 + [0] * 3), np.ones(15, dtype=int)
    assert judge(right, targets, np.array([0] * 12 + [1] * 3)) == (1.0, 1.0)


def test_a_frame_is_put_around_pictures():
    marked = framed(np.full((2, 32, 32, 3), 100, dtype=np.uint8))
    assert (marked[:, 0, 0] == [200, 60, 60]).all()
    assert (marked[:, 16, 16] == 80).all()


def test_an_unknown_pool_is_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown pool 'nothing': known are digits"):
        load_pool("nothing", None, tmp_path)


@pytest.mark.parametrize("name", ["digits", "hatecheck", "gaussian0"])
def test_fresh_plans_are_the_same_again_and_none_of_the_fixed_ones(name):
    plans = fresh_plans(name, 40)
    assert plans == fresh_plans(name, 40)
    assert plans[:5] == fresh_plans(name, 5)
    assert plans != fresh_plans(name, 40, seed=1)
    assert len({plan.kind for plan in plans}) >= 5
    assert not {plan.seed for plan in plans} & {plan.seed for plan in plans_of(name)}
    assert all(plan.attribute for plan in plans if plan.minority)
