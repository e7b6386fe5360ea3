"""Heads fitted to blocks of rows are the heads of all rows."""

from dataclasses import replace
from functools import partial, reduce

import numpy as np
import pytest
import torch

from icda.errors import InputError
from icda.heads import folds, solver
from icda.heads.block_problem import BlockProblem
from icda.heads.blocks import BlockRows, MemoryBlock, Scaling, merge_summaries, summarise
from icda.heads.dealing import deal_folds
from icda.heads.folds import (
    Contrast,
    FoldHeads,
    find_contrast,
    fit_fold_heads,
    sum_margins,
    trust,
    trusted_heads,
    wrong_margin,
)
from icda.heads.problem import LossSettings, Problem, rebalance, reweigh, with_prior
from icda.heads.solver import find_metric, fit_head
from icda.heads.spreading import AttributePrior, AttributeReader

EXACT = {"max_iter": 2000, "tol": 1e-10}
DECAY, FOLDS, SEED = 0.02, 3, 4


def make_rows(classes=3, count=300):
    generator = np.random.default_rng(classes)
    codes = np.minimum(generator.integers(0, classes + 1, count), classes - 1)  # the last class is twice as frequent
    features = generator.normal(size=(count, 6)) * np.linspace(0.2, 3, 6) + 0.7 * codes[:, None] + 5
    return features, np.array(["ant", "bee", "cat", "dog"])[codes]


def gather(features, labels, parts=5, full=True):
    pairs = zip(np.array_split(features, parts), np.array_split(labels, parts), strict=True)
    blocks = [MemoryBlock(*pair) for pair in pairs]
    return BlockRows.gather(blocks, full=full, dtype=torch.float64, folds=FOLDS, seed=SEED)


def in_memory(features, labels):
    scaled = torch.from_numpy((features - features.mean(0)) / features.std(0))
    codes = torch.from_numpy(np.unique(labels, return_inverse=True)[1])
    return Problem.plain(scaled, codes, int(codes.max()) + 1, DECAY)


@pytest.mark.parametrize("parts", [1, 7])
@pytest.mark.parametrize("name", ["ce", "la", "isda", "risda", "icda"])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_head_of_blocks_is_the_head_of_all_rows(name, classes, parts):
    features, labels = make_rows(classes)
    settings = LossSettings(name)
    whole = fit_head(in_memory(features, labels), settings, **EXACT)
    rows = gather(features, labels, parts)
    found = fit_head(BlockProblem(rows, DECAY), settings, **EXACT)
    torch.testing.assert_close(found.weight, whole.weight, atol=1e-6, rtol=0)
    torch.testing.assert_close(found.bias, whole.bias, atol=1e-6, rtol=0)
    assert rows.counts.tolist() == np.unique(labels, return_counts=True)[1].tolist()


@pytest.mark.parametrize("loss", ["la", "icda"])
@pytest.mark.parametrize("strength", [1.0, 0.6])
@pytest.mark.parametrize("classes", [2, 4])
def test_a_prior_over_an_attribute_is_that_of_rows_which_bring_it_along(classes, strength, loss):
    features, labels = make_rows(classes)
    problem = in_memory(features, labels)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    values = (problem.features @ weight.T).argmax(1)
    known = torch.tensor([3, 50, 299])
    values[known] = torch.tensor([2, 0, 1])  # what was found for these rows, whatever the reader says
    whole = fit_head(with_prior(problem, values, strength), LossSettings(loss), **EXACT)
    rows = gather(features, labels)
    reader = AttributeReader(weight, torch.zeros(3).double(), known, values[known])
    assert torch.equal(rows.gathered(reader.read), values)
    treated = BlockProblem(rows, DECAY, prior=AttributePrior.of(reader, rows, strength))
    found = fit_head(treated, LossSettings(loss), **EXACT)
    torch.testing.assert_close(found.weight, whole.weight, atol=1e-6, rtol=0)


@pytest.mark.parametrize("classes", [2, 4])
def test_rows_count_by_trust_as_they_do_in_memory(classes):
    features, labels = make_rows(classes)
    problem, rows = in_memory(features, labels), gather(features, labels)
    heads = trusted_heads(rows, DECAY)
    weights = rows.gathered(partial(trust, heads))
    assert float(weights.max()) == 1
    assert float(weights.min()) < 0.5, "some labels must be doubted, or nothing is compared"
    whole = fit_head(reweigh(problem, weights), LossSettings("la"), **EXACT)
    found = fit_head(BlockProblem(rows, DECAY, partial(trust, heads)), LossSettings("la"), **EXACT)
    torch.testing.assert_close(found.weight, whole.weight, atol=1e-6, rtol=0)


def test_a_block_that_lacks_classes_is_no_trouble():
    features, labels = make_rows()
    order = np.argsort(labels)
    heads = [
        fit_head(BlockProblem(gather(features[rows], labels[rows], 4), DECAY), LossSettings("icda"), **EXACT).weight
        for rows in (order, np.arange(len(order)))
    ]
    torch.testing.assert_close(*heads, atol=1e-6, rtol=0)


def test_summaries_merge_to_the_moments_of_all_rows_and_a_constant_feature_is_divided_by_one():
    features, labels = make_rows()
    features[:, 2] = 3.3
    classes = np.unique(labels)
    blocks = [MemoryBlock(*pair) for pair in zip(np.array_split(features, 4), np.array_split(labels, 4), strict=True)]
    statistics, rows = reduce(merge_summaries, (summarise(block, classes, True, 50) for block in blocks))
    for code, label in enumerate(classes):
        own = features[labels == label]
        np.testing.assert_allclose(statistics.mean[code], own.mean(0), atol=1e-12)
        np.testing.assert_allclose(statistics.covariance[code], np.cov(own.T, bias=True), atol=1e-12)
    scaling = Scaling.of(statistics)
    np.testing.assert_allclose(scaling.mean, features.mean(0), atol=1e-12)
    np.testing.assert_allclose(scaling.scale, np.where(np.arange(6) == 2, 1, features.std(0)), atol=1e-12)
    assert len(rows) == 8


def test_what_cannot_be_fitted_is_refused():
    features, labels = make_rows()
    with pytest.raises(InputError, match="at least 2 classes"):
        gather(features, np.full(300, "ant"))
    with pytest.raises(InputError, match="no rows"):
        BlockRows.gather([])
    features[77, 3] = np.nan
    with pytest.raises(InputError, match="NaN"):
        gather(features, labels)


def naive(problem, attributes):
    """Each fold's head by itself, with every (class, attribute) of all rows weighing the same."""
    codes, classes = problem.targets.numpy(), problem.num_classes
    dealt = torch.from_numpy(deal_folds(codes, np.zeros(classes, dtype=np.int64), FOLDS, SEED))
    balanced = rebalance(problem, attributes)
    heads = [fit_head(balanced.rows(dealt != fold), LossSettings("ce"), **EXACT) for fold in range(FOLDS)]
    return FoldHeads(torch.stack([head.weight for head in heads]), torch.stack([head.bias for head in heads]))


@pytest.mark.parametrize("parts", [1, 7])
@pytest.mark.parametrize("classes", [2, 4])
def test_heads_of_folds_are_those_that_each_fold_s_rows_give_by_themselves(classes, parts):
    features, labels = make_rows(classes)
    problem, rows = in_memory(features, labels), gather(features, labels, parts, full=False)
    biased = fit_fold_heads(rows, DECAY, **EXACT)
    wanted = naive(problem, torch.zeros_like(problem.targets))
    torch.testing.assert_close(biased.weight, wanted.weight, atol=1e-6, rtol=0)
    contrast = Contrast(biased)
    hurt = rows.gathered(contrast.ties) > 0
    assert 0 < int(hurt.sum()) < len(hurt)
    robust = fit_fold_heads(rows, DECAY, contrast=contrast, **EXACT)
    torch.testing.assert_close(robust.weight, naive(problem, hurt.long()).weight, atol=1e-6, rtol=0)


@pytest.mark.parametrize("classes", [2, 4])
def test_rows_in_memory_are_one_block(classes):
    features, labels = make_rows(classes)
    problem = in_memory(features, labels)
    memory = BlockRows.of_memory(problem.features, problem.targets, classes, FOLDS, SEED)
    found = [find_contrast(rows, DECAY, 2, **EXACT)[0] for rows in (memory, gather(features, labels, 4, full=False))]
    torch.testing.assert_close(found[0].robust, found[1].robust, atol=1e-5, rtol=0)
    assert found[0].deviation == pytest.approx(found[1].deviation, rel=1e-5)


def test_a_tie_is_the_biased_margin_less_half_the_robust_one():
    rows = gather(*make_rows(4), full=False)
    biased = fit_fold_heads(rows, DECAY)
    robust = FoldHeads(0.5 * biased.weight, 0.5 * biased.bias)
    chunk = next(rows.reading.chunks(rows.places[0]))
    alone = Contrast(biased).ties(chunk)
    torch.testing.assert_close(alone, wrong_margin(biased.held_out(chunk), chunk.targets))
    torch.testing.assert_close(Contrast(biased, 2.0, robust, 4.0).ties(chunk), alone / 2 - 0.5 * (0.5 * alone) / 4)


def test_margins_of_all_blocks_have_the_deviation_of_all_rows():
    rows = gather(*make_rows(4), full=False)
    heads = fit_fold_heads(rows, DECAY)
    (deviation, confidence), margins = sum_margins(rows, heads), rows.gathered(Contrast(heads).ties)
    assert deviation == pytest.approx(float(margins.std()))
    assert float(confidence.sum()) < len(margins)


def test_a_metric_changes_the_way_and_not_the_heads(monkeypatch):
    rows = gather(*make_rows(4), full=False)
    plain = fit_fold_heads(rows, DECAY, **EXACT)
    monkeypatch.setattr(folds, "METRIC_SHARE", 0.0)
    torch.testing.assert_close(fit_fold_heads(rows, DECAY, **EXACT).weight, plain.weight, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["isda", "risda", "icda"])
def test_in_a_metric_the_head_of_blocks_is_that_of_memory_as_well(name, monkeypatch):
    monkeypatch.setattr(solver, "LEAST_AUGMENTED", 0)
    features, labels = make_rows(4)
    problem, settings = in_memory(features, labels), LossSettings(name)
    assert find_metric(problem, settings.name) is not None
    whole = fit_head(problem, settings, max_iter=500, tol=1e-5)
    found = fit_head(BlockProblem(gather(features, labels), DECAY), settings, max_iter=500, tol=1e-5)
    assert found.value == pytest.approx(whole.value, abs=1e-5)
    torch.testing.assert_close(found.weight, whole.weight, rtol=0, atol=2e-3 * float(whole.weight.abs().max()))


def test_rows_in_single_precision_give_the_head_of_doubles_to_single_precision():
    features, labels = make_rows()
    rows = gather(features, labels)
    single = replace(rows, reading=replace(rows.reading, dtype=torch.float32))
    heads = [fit_head(BlockProblem(each, DECAY), LossSettings("la"), 500, 1e-6) for each in (rows, single)]
    assert heads[1].weight.dtype == torch.float32
    torch.testing.assert_close(heads[1].weight.double(), heads[0].weight, atol=1e-3, rtol=1e-3)
