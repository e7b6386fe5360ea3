import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icda import CrossEntropyLoss, ISDALoss
from support import drawn_batch

SHAPES = [(7, 4, 5), (3, 9, 4), (6, 2, 3)]


def oracle_adjustment(targets, weight, sigma, lam):
    rows = []
    for y in targets.tolist():
        differences = [weight[c] - weight[y] for c in range(len(weight))]
        rows.append(torch.stack([lam / 2 * (d @ sigma[y] @ d) for d in differences]))
    return torch.stack(rows)


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
@pytest.mark.parametrize("shape", SHAPES)
def test_adjustment_loss_and_gradients_equal_naive_loops(kind, shape):
    _, num_classes, dim = shape
    loss = ISDALoss(num_classes, dim, lambda0=0.8, covariance=kind, rank=dim).double()
    seen: list[tuple[Tensor, Tensor]] = []
    for seed in range(3):
        features, targets, head = drawn_batch(seed, *shape)
        value = loss(features, targets, head, progress=0.7)
        seen.append((features.detach(), targets))
    everything, labels = torch.cat([f for f, _ in seen]), torch.cat([t for _, t in seen])
    sigma = torch.zeros(num_classes, dim, dim, dtype=torch.float64)
    for c in labels.unique().tolist():
        sigma[c] = everything[labels == c].T.cov(correction=0).view(dim, dim)
    if kind == "diagonal":
        sigma = torch.diag_embed(sigma.diagonal(dim1=1, dim2=2))
    phi = oracle_adjustment(targets, head.weight, sigma, 0.8 * 0.7)
    torch.testing.assert_close(loss.adjustment(features, targets, head, 0.7), phi, rtol=0, atol=1e-10)
    expected = F.cross_entropy(head(features) + phi, targets)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-10)
    leaves = [features, head.weight, head.bias]
    for found, wanted in zip(torch.autograd.grad(value, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("lambda0", "progress"), [(0.5, 0.0), (0.0, 1.0)])
def test_lambda_zero_is_cross_entropy(lambda0, progress):
    features, targets, head = drawn_batch(0, 7, 4, 5)
    value = ISDALoss(4, 5, lambda0=lambda0).double()(features, targets, head, progress)
    torch.testing.assert_close(value, CrossEntropyLoss(4, 5)(features, targets, head), rtol=0, atol=0)
