import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda import CrossEntropyLoss, ISDALoss, RISDALoss

SHAPES = [(7, 4, 5), (3, 9, 4), (6, 2, 3)]


def make_batch(seed: int, size: int, num_classes: int, dim: int) -> tuple[Tensor, Tensor, nn.Linear]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(size, dim, generator=generator, dtype=torch.float64).requires_grad_()
    torch.manual_seed(seed)
    return features, torch.randint(num_classes, (size,), generator=generator), nn.Linear(dim, num_classes).double()


def oracle_adjustment(
    targets: Tensor, weight: Tensor, confusion: Tensor, mean: Tensor, sigma: Tensor, a: float, b: float, own: set[int]
) -> Tensor:
    """(b/2) d^T Sigma~_y d + a d.mu~_y with Sigma~_y = sum_j K[y,j] Sigma_j and mu~_y = sum_j K[y,j] mu_j - mu_y."""
    num_classes, rows = len(weight), []
    for y in targets.tolist():
        total = confusion[y].sum()
        relation = [float(confusion[y, j] / total) if total > 0 else float(j == y) for j in range(num_classes)]
        mixed = sigma[y] if y in own else sum(relation[j] * sigma[j] for j in range(num_classes))
        shift = sum(relation[j] * mean[j] for j in range(num_classes)) - mean[y]
        differences = [weight[c] - weight[y] for c in range(num_classes)]
        rows.append(torch.stack([b / 2 * (d @ mixed @ d) + a * (d @ shift) for d in differences]))
    return torch.stack(rows)


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("head_classes", [0, 1, 2])
def test_adjustment_loss_and_gradients_equal_naive_loops(
    kind: str, shape: tuple[int, int, int], head_classes: int
) -> None:
    _, num_classes, dim = shape
    counts = torch.arange(num_classes) + 1  # the last classes are the most frequent
    own = set(range(num_classes - head_classes, num_classes))
    options = {"lambda0": 0.8, "mean_strength": 0.6, "head_classes": head_classes, "covariance": kind, "rank": dim}
    loss = RISDALoss(num_classes, dim, counts, **options).double()
    confusion = torch.zeros(num_classes, num_classes, dtype=torch.float64)
    seen: list[tuple[Tensor, Tensor]] = []
    for seed in range(3):
        features, targets, head = make_batch(seed, *shape)
        value = loss(features, targets, head, progress=0.7)
        seen.append((features.detach(), targets))
        for y, scores in zip(targets.tolist(), head(features).tolist(), strict=True):
            confusion[y, scores.index(max(scores))] += 1
    assert torch.equal(loss.confusion, confusion)
    everything, labels = torch.cat([f for f, _ in seen]), torch.cat([t for _, t in seen])
    mean = torch.zeros(num_classes, dim, dtype=torch.float64)
    sigma = torch.zeros(num_classes, dim, dim, dtype=torch.float64)
    for c in labels.unique().tolist():
        mean[c] = everything[labels == c].mean(0)
        sigma[c] = everything[labels == c].T.cov(correction=0).view(dim, dim)
    if kind == "diagonal":
        sigma = torch.diag_embed(sigma.diagonal(dim1=1, dim2=2))
    phi = oracle_adjustment(targets, head.weight, confusion, mean, sigma, 0.6 * 0.7, 0.8 * 0.7, own)
    torch.testing.assert_close(loss.adjustment(features, targets, head, 0.7), phi, rtol=0, atol=1e-10)
    expected = F.cross_entropy(head(features) + phi, targets)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-10)
    leaves = [features, head.weight, head.bias]
    for found, wanted in zip(torch.autograd.grad(value, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)


def test_the_identity_as_confusion_is_isda() -> None:
    features, targets, head = make_batch(0, 9, 4, 5)
    risda, isda = RISDALoss(4, 5).double(), ISDALoss(4, 5).double()
    risda.set_confusion(torch.eye(4))
    found, expected = risda(features, targets, head, 0.7), isda(features, targets, head, 0.7)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_progress_zero_is_cross_entropy() -> None:
    features, targets, head = make_batch(0, 9, 4, 5)
    value = RISDALoss(4, 5).double()(features, targets, head, progress=0.0)
    assert torch.equal(value, CrossEntropyLoss(4, 5)(features, targets, head))


def test_the_means_still_move_when_lambda_is_zero() -> None:
    features, targets, head = make_batch(0, 9, 4, 5)
    loss = RISDALoss(4, 5, lambda0=0.0).double()
    loss.set_confusion(torch.ones(4, 4))
    loss(features, targets, head)
    mean = loss.statistics.mean
    phi = loss.adjustment(features, targets, head, progress=0.5)
    for i, y in enumerate(targets.tolist()):
        for c in range(4):
            expected = 0.5 * (head.weight[c] - head.weight[y]) @ (mean.mean(0) - mean[y])
            torch.testing.assert_close(phi[i, c], expected, rtol=0, atol=1e-12)


def test_relations_are_rows_that_sum_to_one_and_a_class_not_seen_is_related_to_itself() -> None:
    loss = RISDALoss(3, 2)
    loss.set_confusion(torch.tensor([[6, 2, 0], [0, 0, 0], [1, 1, 2]]))
    expected = [[0.75, 0.25, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]]
    assert loss.relations().tolist() == expected


def test_a_confusion_that_was_set_is_counted_no_further() -> None:
    features, targets, head = make_batch(1, 9, 4, 5)
    loss = RISDALoss(4, 5).double()
    loss(features, targets, head)
    assert loss.confusion.sum() == 9
    given = torch.rand(4, 4)
    loss.set_confusion(given)
    loss(features, targets, head)
    assert torch.equal(loss.confusion, given.double())


def test_that_the_confusion_was_set_is_part_of_the_state() -> None:
    features, targets, head = make_batch(1, 9, 4, 5)
    loss, restored = RISDALoss(4, 5).double(), RISDALoss(4, 5).double()
    loss.set_confusion(torch.rand(4, 4))
    restored.load_state_dict(loss.state_dict())
    restored(features, targets, head)
    assert torch.equal(restored.confusion, loss.confusion)


def test_evaluation_counts_no_confusion() -> None:
    features, targets, head = make_batch(1, 9, 4, 5)
    loss = RISDALoss(4, 5).double().eval()
    loss(features, targets, head)
    assert not loss.confusion.any()


def test_mixing_is_read_not_written_back_into_the_statistics() -> None:
    risda, isda = RISDALoss(4, 5).double(), ISDALoss(4, 5).double()
    for seed in range(3):
        features, targets, head = make_batch(seed, 9, 4, 5)
        risda(features, targets, head)
        isda(features, targets, head)
    assert torch.equal(risda.statistics.covariance, isda.statistics.covariance)
    assert torch.equal(risda.statistics.mean, isda.statistics.mean)


@pytest.mark.parametrize("confusion", [torch.ones(3, 4), -torch.eye(4), torch.full((4, 4), float("nan"))])
def test_a_bad_confusion_is_refused_and_nothing_is_lost(confusion: Tensor) -> None:
    loss = RISDALoss(4, 5)
    loss.set_confusion(torch.eye(4))
    with pytest.raises(ValueError, match="confusion must be"):
        loss.set_confusion(confusion)
    assert torch.equal(loss.confusion, torch.eye(4).double())


def test_the_adjustment_is_zero_at_the_target_without_rounding() -> None:
    features, targets, head = torch.randn(50, 64) * 3, torch.randint(10, (50,)), nn.Linear(64, 10)
    loss = RISDALoss(10, 64)
    loss(features, targets, head)
    assert (loss.adjustment(features, targets, head).gather(1, targets[:, None]) == 0).all()


def test_ties_between_equally_frequent_classes_go_to_the_first() -> None:
    assert RISDALoss(4, 5, torch.tensor([2, 7, 7, 7]), head_classes=2).keeps_own.tolist() == [False, True, True, False]


def test_head_classes_need_counts_and_must_not_outnumber_the_classes() -> None:
    with pytest.raises(ValueError, match="needs class_counts to know which are the head_classes"):
        RISDALoss(4, 5, head_classes=2)
    with pytest.raises(ValueError, match=r"head_classes must lie in 0\.\.4, got 5"):
        RISDALoss(4, 5, torch.arange(4), head_classes=5)
    with pytest.raises(ValueError, match=r"head_classes must lie in 0\.\.4, got -1"):
        RISDALoss(4, 5, torch.arange(4), head_classes=-1)


@pytest.mark.parametrize("cast", ["half", "bfloat16"])
def test_casting_a_model_down_keeps_the_confusion(cast: str) -> None:
    loss = RISDALoss(2, 3)
    loss.set_confusion(torch.tensor([[70_001, 3], [515, 4_099]]))
    expected = loss.relations()
    getattr(loss, cast)()
    torch.testing.assert_close(loss.relations().double(), expected)
