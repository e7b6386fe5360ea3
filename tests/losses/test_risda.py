import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda import CrossEntropyLoss, ISDALoss, RISDALoss
from support import drawn_batch

SHAPES = [(7, 4, 5), (3, 9, 4), (6, 2, 3)]


def oracle_adjustment(targets, weight, confusion, mean, sigma, a, b, own):
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
def test_adjustment_loss_and_gradients_equal_naive_loops(kind, shape, head_classes):
    _, num_classes, dim = shape
    counts = torch.arange(num_classes) + 1  # the last classes are the most frequent
    own = set(range(num_classes - head_classes, num_classes))
    options = {"lambda0": 0.8, "mean_strength": 0.6, "head_classes": head_classes, "covariance": kind, "rank": dim}
    loss = RISDALoss(num_classes, dim, counts, **options).double()
    confusion = torch.zeros(num_classes, num_classes, dtype=torch.float64)
    seen: list[tuple[Tensor, Tensor]] = []
    for seed in range(3):
        features, targets, head = drawn_batch(seed, *shape)
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


def test_the_identity_as_confusion_is_isda():
    features, targets, head = drawn_batch(0, 9, 4, 5)
    risda, isda = RISDALoss(4, 5).double(), ISDALoss(4, 5).double()
    risda.set_confusion(torch.eye(4))
    found, expected = risda(features, targets, head, 0.7), isda(features, targets, head, 0.7)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_progress_zero_is_cross_entropy():
    features, targets, head = drawn_batch(0, 9, 4, 5)
    value = RISDALoss(4, 5).double()(features, targets, head, progress=0.0)
    assert torch.equal(value, CrossEntropyLoss(4, 5)(features, targets, head))


def test_the_means_still_move_when_lambda_is_zero():
    features, targets, head = drawn_batch(0, 9, 4, 5)
    loss = RISDALoss(4, 5, lambda0=0.0).double()
    loss.set_confusion(torch.ones(4, 4))
    loss(features, targets, head)
    mean = loss.statistics.mean
    phi = loss.adjustment(features, targets, head, progress=0.5)
    for i, y in enumerate(targets.tolist()):
        for c in range(4):
            expected = 0.5 * (head.weight[c] - head.weight[y]) @ (mean.mean(0) - mean[y])
            torch.testing.assert_close(phi[i, c], expected, rtol=0, atol=1e-12)


def test_relations_are_rows_that_sum_to_one_and_a_class_not_seen_is_related_to_itself():
    loss = RISDALoss(3, 2)
    loss.set_confusion(torch.tensor([[6, 2, 0], [0, 0, 0], [1, 1, 2]]))
    expected = [[0.75, 0.25, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]]
    assert loss.relations().tolist() == expected


def test_a_confusion_that_was_set_is_counted_no_further():
    features, targets, head = drawn_batch(1, 9, 4, 5)
    loss = RISDALoss(4, 5).double()
    loss(features, targets, head)
    assert loss.confusion.sum() == 9
    given = torch.rand(4, 4)
    loss.set_confusion(given)
    loss(features, targets, head)
    assert torch.equal(loss.confusion, given.double())


def test_that_the_confusion_was_set_is_part_of_the_state():
    features, targets, head = drawn_batch(1, 9, 4, 5)
    loss, restored = RISDALoss(4, 5).double(), RISDALoss(4, 5).double()
    loss.set_confusion(torch.rand(4, 4))
    restored.load_state_dict(loss.state_dict())
    restored(features, targets, head)
    assert torch.equal(restored.confusion, loss.confusion)


def test_evaluation_counts_no_confusion():
    features, targets, head = drawn_batch(1, 9, 4, 5)
    loss = RISDALoss(4, 5).double().eval()
    loss(features, targets, head)
    assert not loss.confusion.any()


def test_mixing_is_read_not_written_back_into_the_statistics():
    risda, isda = RISDALoss(4, 5).double(), ISDALoss(4, 5).double()
    for seed in range(3):
        features, targets, head = drawn_batch(seed, 9, 4, 5)
        risda(features, targets, head)
        isda(features, targets, head)
    assert torch.equal(risda.statistics.covariance, isda.statistics.covariance)
    assert torch.equal(risda.statistics.mean, isda.statistics.mean)


def released_code(batches, relation, head):
    """Covariances and logits' adjustment (a = b = 1) after some batches, in the released code's order.

    Each batch is merged into the running mean and covariance by weights n / (n + N); then the covariances of all but the
    first `head` classes become their mixtures, and stay so.
    """
    _, dim = batches[0][0].shape
    count, mean = [0.0] * len(relation), torch.zeros(len(relation), dim, dtype=torch.float64)
    sigma = torch.zeros(len(relation), dim, dim, dtype=torch.float64)
    for features, targets, _ in batches:
        for c in range(len(relation)):
            rows = features.detach()[targets == c]
            if len(rows):
                w = len(rows) / (len(rows) + count[c])
                gap = mean[c] - rows.mean(0)
                spread = (rows - rows.mean(0)).T @ (rows - rows.mean(0)) / len(rows)
                sigma[c] = (1 - w) * sigma[c] + w * spread + w * (1 - w) * torch.outer(gap, gap)
                mean[c] = (1 - w) * mean[c] + w * rows.mean(0)
                count[c] += len(rows)
        mixed = [sum(relation[c, j] * sigma[j] for j in range(len(relation))) for c in range(len(relation))]
        sigma = torch.stack([sigma[c] if c < head else mixed[c] for c in range(len(relation))])
    _, targets, linear = batches[-1]
    phi = oracle_adjustment(targets, linear.weight, relation, mean, sigma, 1.0, 1.0, set(range(len(relation))))
    return sigma, phi


@pytest.mark.parametrize("kind", ["full", "diagonal"])
@pytest.mark.parametrize("head_classes", [0, 2])
def test_written_back_mixtures_compound_as_in_the_released_code(kind, head_classes):
    counts = torch.tensor([9, 7, 5, 2])  # the first classes are the most frequent, as there
    batches = [drawn_batch(seed, 12, 4, 5) for seed in range(6)]
    batches = [(features, torch.arange(12) % 4, head) for features, _, head in batches]
    options = {"lambda0": 1.0, "head_classes": head_classes, "covariance": kind, "write_back": True}
    loss, relation = RISDALoss(4, 5, counts, **options).double(), torch.rand(4, 4, dtype=torch.float64)
    loss.set_confusion(relation)
    for features, targets, head in batches:
        loss(features, targets, head)
    sigma, phi = released_code(batches, relation / relation.sum(1, keepdim=True), head_classes)
    features, targets, head = batches[-1]
    found = loss.statistics.covariance
    if kind == "diagonal":
        torch.testing.assert_close(found, sigma.diagonal(dim1=1, dim2=2), rtol=0, atol=1e-12)
        return
    torch.testing.assert_close(found, sigma, rtol=0, atol=1e-12)
    torch.testing.assert_close(loss.adjustment(features, targets, head), phi, rtol=0, atol=1e-10)


def test_tail_classes_lose_their_own_covariance_where_it_is_written_back():
    plain, written = (
        RISDALoss(4, 5, torch.tensor([9, 7, 5, 2]), head_classes=1, write_back=on).double() for on in (False, True)
    )
    for loss in (plain, written):
        loss.set_confusion(torch.tensor([[8, 1, 1, 0], [2, 6, 1, 1], [3, 1, 5, 1], [4, 1, 1, 4]]))
        for seed in range(50):
            features, targets, head = drawn_batch(seed, 12, 4, 5)
            loss(features * (1 + targets[:, None]), targets, head)
    own, mixed = plain.statistics.covariance, written.statistics.covariance
    torch.testing.assert_close(mixed[0], own[0])
    assert ((mixed - own).flatten(1).norm(dim=1) / own.flatten(1).norm(dim=1))[3] > 0.5


def test_evaluation_writes_nothing_back_and_low_rank_covariances_are_refused():
    features, targets, head = drawn_batch(0, 12, 4, 5)
    loss = RISDALoss(4, 5, write_back=True).double()
    loss(features, targets, head)
    before = loss.statistics.covariance.clone()
    loss.eval()(features, targets, head)
    assert torch.equal(loss.statistics.covariance, before)
    with pytest.raises(ValueError, match="write_back needs full or diagonal covariances"):
        RISDALoss(4, 5, covariance="low_rank", write_back=True)


@pytest.mark.parametrize("confusion", [torch.ones(3, 4), -torch.eye(4), torch.full((4, 4), float("nan"))])
def test_a_bad_confusion_is_refused_and_nothing_is_lost(confusion):
    loss = RISDALoss(4, 5)
    loss.set_confusion(torch.eye(4))
    with pytest.raises(ValueError, match="confusion must be"):
        loss.set_confusion(confusion)
    assert torch.equal(loss.confusion, torch.eye(4).double())


def test_the_adjustment_is_zero_at_the_target_without_rounding():
    features, targets, head = torch.randn(50, 64) * 3, torch.randint(10, (50,)), nn.Linear(64, 10)
    loss = RISDALoss(10, 64)
    loss(features, targets, head)
    assert (loss.adjustment(features, targets, head).gather(1, targets[:, None]) == 0).all()


def test_ties_between_equally_frequent_classes_go_to_the_first():
    assert RISDALoss(4, 5, torch.tensor([2, 7, 7, 7]), head_classes=2).keeps_own.tolist() == [False, True, True, False]


def test_head_classes_need_counts_and_must_not_outnumber_the_classes():
    with pytest.raises(ValueError, match="needs class_counts to know which are the head_classes"):
        RISDALoss(4, 5, head_classes=2)
    with pytest.raises(ValueError, match="head_classes"):
        RISDALoss(4, 5, torch.arange(4), head_classes=5)
    with pytest.raises(ValueError, match="head_classes"):
        RISDALoss(4, 5, torch.arange(4), head_classes=-1)


@pytest.mark.parametrize("cast", ["half", "bfloat16"])
def test_casting_a_model_down_keeps_the_confusion(cast):
    loss = RISDALoss(2, 3)
    loss.set_confusion(torch.tensor([[70_001, 3], [515, 4_099]]))
    expected = loss.relations()
    getattr(loss, cast)()
    torch.testing.assert_close(loss.relations().double(), expected)
