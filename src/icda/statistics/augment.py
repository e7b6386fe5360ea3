"""Explicit counterfactual augmentation: the naive method whose limit the ICDA loss approaches."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from icda.errors import InputError
from icda.functional.strength import Strength
from icda.statistics import ClassStatistics


class AugmentedFeatures(NamedTuple):
    """`features` (M, A) with the labels they keep, `targets` (M,); the row each came from, `source` (M,), and the class
    each was moved to, `towards` (M,)."""

    features: Tensor
    targets: Tensor
    source: Tensor
    towards: Tensor


@torch.no_grad()
def augment(
    features: Tensor,
    targets: Tensor,
    statistics: ClassStatistics,
    strength: Strength,
    lam: float,
    num_samples: int,
    generator: torch.Generator | None = None,
) -> AugmentedFeatures:
    """Draw augmented features as the paper's L_M does (eq. 1).

    A pair (i, c) is drawn with probability proportional to alpha_{i,c} / pi_{y_i}, the paper's number of augmentations
    M-tilde_{i,c}; then h_{i,c} ~ N(h_i + lam alpha_{i,c} mu_c, lam (Sigma_y + alpha_{i,c} Sigma_c)). The mean cross
    entropy of the result is therefore an unbiased estimate of L_infinity (eq. 2).

    Args:
        features: (N, A).
        targets: Labels (N,).
        statistics: Class means and covariances; pi comes from their counts.
        strength: alpha (N, C), such as `direct_strength` gives.
        lam: lambda, how far features are moved.
        num_samples: How many are drawn, M.
        generator: What they are drawn with.

    Returns:
        Features (M, A) with their labels, and which sample was moved towards which class.

    >>> statistics = ClassStatistics(num_classes=2, feature_dim=3)
    >>> features, targets = torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])
    >>> statistics.update(features, targets)
    >>> strength = Strength(torch.tensor([[0.0, 0.5], [0.5, 0.0]]).repeat(3, 1), torch.full((6,), 0.5))
    >>> drawn = augment(features, targets, statistics, strength, lam=0.5, num_samples=10)
    >>> drawn.features.shape, bool((drawn.towards != drawn.targets).all())
    (torch.Size([10, 3]), True)
    """
    if lam < 0 or num_samples < 1:
        raise InputError(f"lam must not be negative and num_samples be at least 1, got {lam} and {num_samples}.")
    counts = statistics.count[targets]
    if (counts == 0).any():
        raise InputError(f"class {int(targets[counts == 0][0])} has no statistics: update them before augmenting.")
    amount = strength.per_class.double() / counts[:, None]
    if not amount.sum() > 0:
        raise InputError("all strengths are zero: no sample is tied to a wrong class, so there is nothing to augment.")
    pairs = torch.multinomial(amount.flatten(), num_samples, replacement=True, generator=generator)
    num_classes = statistics.num_classes
    source, towards = pairs // num_classes, pairs % num_classes
    labels, alpha = targets[source], strength.per_class.flatten()[pairs].to(features)[:, None]
    moments = statistics.moments()
    roots = _square_roots(moments.covariance().to(features))
    own = _noise(roots, labels, features, generator)
    other = _noise(roots, towards, features, generator)
    drawn = features[source] + lam * alpha * moments.mean.to(features)[towards]
    drawn = drawn + lam**0.5 * (own + alpha.sqrt() * other)
    return AugmentedFeatures(drawn, labels, source, towards)


def _square_roots(covariance: Tensor) -> Tensor:
    """L with L L^T = Sigma; eigenvalues that rounding made negative count as zero."""
    if covariance.dim() == 2:
        return covariance.clamp(min=0).sqrt()
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp(min=0).sqrt()[:, None, :]


def _noise(roots: Tensor, classes: Tensor, features: Tensor, generator: torch.Generator | None) -> Tensor:
    """One draw from N(0, Sigma_c) for every entry of `classes`."""
    shape = (len(classes), features.shape[1])
    standard = torch.randn(shape, generator=generator, dtype=features.dtype, device=features.device)
    if roots.dim() == 2:
        return standard * roots[classes]
    noise = torch.empty_like(standard)
    for label in torch.unique(classes).tolist():
        rows = (classes == label).nonzero().flatten()
        noise[rows] = standard[rows] @ roots[label].T
    return noise
