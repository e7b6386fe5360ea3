"""Heads fitted to blocks of rows are the heads of all rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from icda.errors import InputError
from icda.heads.block_fit import fit_blocks
from icda.heads.blocks import AttributeReader, Scaling, merge_summaries, summarise
from icda.heads.problem import LossSettings
from icda.heads.problem import Problem
from icda.heads.solver import fit_head


@dataclass(frozen=True)
class InMemory:
    """A block whose rows are here already."""

    features: np.ndarray
    targets: np.ndarray

    def __len__(self) -> int:
        return len(self.targets)

    def labels(self) -> np.ndarray:
        return self.targets

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        return self.features, self.targets


def make_rows(classes: int = 3, count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(classes)
    codes = np.minimum(generator.integers(0, classes + 1, count), classes - 1)  # the last class is twice as frequent
    features = generator.normal(size=(count, 6)) * np.linspace(0.2, 3, 6) + 0.7 * codes[:, None] + 5
    return features, np.array(["ant", "bee", "cat", "dog"])[codes]


def cut(features: np.ndarray, labels: np.ndarray, parts: int) -> list[InMemory]:
    pairs = zip(np.array_split(features, parts), np.array_split(labels, parts), strict=True)
    return [InMemory(*pair) for pair in pairs]


@pytest.mark.parametrize("name", ["ce", "la", "isda", "risda", "icda"])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_head_of_blocks_is_the_head_of_all_rows(name: str, classes: int) -> None:
    features, labels = make_rows(classes)
    mean, scale = features.mean(0), features.std(0)
    codes = torch.from_numpy(np.unique(labels, return_inverse=True)[1])
    problem = Problem.of(torch.from_numpy((features - mean) / scale), codes, classes, C=0.2)
    settings = LossSettings(name)  # type: ignore[arg-type]
    whole = fit_head(problem, settings, 2000, 1e-9)
    found = fit_blocks(
        cut(features, labels, 7), settings, lambda n, _: 1 / (0.2 * n), max_iter=2000, tol=1e-9, dtype=torch.float64
    )
    coef = whole.weight.numpy() / scale
    np.testing.assert_allclose(found.coef, coef, atol=1e-6)
    np.testing.assert_allclose(found.intercept, whole.bias.numpy() - coef @ mean, atol=1e-6 * np.abs(coef).sum() * 8)
    assert found.classes.tolist() == sorted(set(labels))
    assert found.class_counts.tolist() == [int((labels == label).sum()) for label in found.classes]


@pytest.mark.parametrize("name", ["la", "icda"])
def test_how_rows_are_cut_changes_nothing(name: str) -> None:
    features, labels = make_rows()
    settings = LossSettings(name)  # type: ignore[arg-type]
    heads = [
        fit_blocks(cut(features, labels, parts), settings, lambda n, _: 1 / n, tol=1e-8, dtype=torch.float64).coef
        for parts in (1, 5)
    ]
    np.testing.assert_allclose(heads[0], heads[1], atol=1e-6)


@pytest.mark.parametrize("strength", [1.0, 0.6])
@pytest.mark.parametrize("classes", [2, 4])
def test_a_prior_over_an_attribute_is_that_of_rows_which_bring_it_along(classes: int, strength: float) -> None:
    features, labels = make_rows(classes)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(3, 6, generator=generator, dtype=torch.float64)
    bias = -weight @ torch.from_numpy(features.mean(0))
    values = (torch.from_numpy(features) @ weight.T + bias).argmax(1)
    assert len(values.unique()) == 3
    mean, scale = features.mean(0), features.std(0)
    codes = torch.from_numpy(np.unique(labels, return_inverse=True)[1])
    problem = Problem.of(torch.from_numpy((features - mean) / scale), codes, classes, C=0.2)
    counts = torch.stack([torch.bincount(codes[values == k], minlength=classes) for k in range(3)]).double()
    given = (counts.clamp(min=0.5) / counts.clamp(min=0.5).sum(1, keepdim=True)).log()
    mixed = strength * given + (1 - strength) * (counts.sum(0) / counts.sum()).log()
    whole = fit_head(replace(problem, log_prior=mixed[values]), LossSettings("la"), 2000, 1e-9)
    found = fit_blocks(
        cut(features, labels, 5),
        LossSettings("la"),
        lambda n, _: 1 / (0.2 * n),
        max_iter=2000,
        tol=1e-9,
        dtype=torch.float64,
        attribute=AttributeReader(weight, bias, strength),
    )
    np.testing.assert_allclose(found.coef, whole.weight.numpy() / scale, atol=1e-6)


def test_a_block_that_lacks_classes_is_no_trouble() -> None:
    features, labels = make_rows()
    order = np.argsort(labels)
    settings, decay = LossSettings("icda"), lambda n, _: 1 / n
    sorted_rows, mixed = (
        fit_blocks(cut(features[rows], labels[rows], 4), settings, decay, tol=1e-8, dtype=torch.float64).coef
        for rows in (order, np.arange(len(order)))
    )
    np.testing.assert_allclose(sorted_rows, mixed, atol=1e-6)


def test_summaries_merge_to_the_moments_of_all_rows() -> None:
    features, labels = make_rows()
    classes = np.unique(labels)
    found = merge_summaries(summarise(block, classes, True, 50) for block in cut(features, labels, 4))
    for code, label in enumerate(classes):
        own = features[labels == label]
        np.testing.assert_allclose(found.statistics.mean[code], own.mean(0), atol=1e-12)
        np.testing.assert_allclose(found.statistics.covariance[code], np.cov(own.T, bias=True), atol=1e-12)
    scaling = Scaling.of(found.statistics)
    np.testing.assert_allclose(scaling.mean, features.mean(0), atol=1e-12)
    np.testing.assert_allclose(scaling.scale, features.std(0), atol=1e-12)
    assert len(found.rows) == 8


def test_a_constant_feature_is_divided_by_one() -> None:
    features, labels = make_rows()
    features[:, 2] = 3.3
    found = merge_summaries(summarise(block, np.unique(labels), False, 50) for block in cut(features, labels, 4))
    assert float(Scaling.of(found.statistics).scale[2]) == 1.0


def test_float32_rows_give_the_head_of_float64_to_single_precision() -> None:
    features, labels = make_rows()
    found = [
        fit_blocks(cut(features.astype(kind), labels, 3), LossSettings("la"), lambda n, _: 1 / n, tol=1e-6, dtype=dtype)
        for kind, dtype in ((np.float64, torch.float64), (np.float32, torch.float32))
    ]
    assert found[1].coef.dtype == np.float32
    np.testing.assert_allclose(found[0].coef, found[1].coef, atol=1e-3, rtol=1e-3)


def test_what_cannot_be_fitted_is_refused() -> None:
    features, labels = make_rows()
    reader = AttributeReader(torch.zeros(2, 6), torch.zeros(2))
    with pytest.raises(InputError, match="prior of an attribute with la"):
        fit_blocks(cut(features, labels, 2), LossSettings("icda"), lambda n, _: 1 / n, attribute=reader)
    with pytest.raises(InputError, match="at least 2 classes"):
        fit_blocks(cut(features, np.full(300, "ant"), 2), LossSettings("ce"), lambda n, _: 1 / n)
    with pytest.raises(InputError, match="no rows"):
        fit_blocks([], LossSettings("ce"), lambda n, _: 1 / n)
    features[77, 3] = np.nan
    with pytest.raises(InputError, match="NaN"):
        fit_blocks(cut(features, labels, 2), LossSettings("ce"), lambda n, _: 1 / n)
