import pytest
import torch

from icda.functional.mapped_variance import mapped_variances, mean_mapped_variances
from icda.statistics import ClassStatistics

C, A = 4, 3


def statistics(kind, classes=C, samples=60):
    features, targets = torch.randn(samples, A, dtype=torch.float64), torch.arange(samples) % classes
    found = ClassStatistics(classes, A, kind, rank=A).double()  # type: ignore[arg-type]
    found.update(features, targets)
    return found, features, targets


@pytest.mark.parametrize("kind", ["full", "diagonal", "low_rank"])
def test_the_table_is_the_quadratic_form_of_every_class_on_every_boundary(kind):
    found, _, _ = statistics(kind)
    weight = torch.randn(C, A, dtype=torch.float64)
    table = torch.stack([mapped_variances(weight, found.moments(), j) for j in range(len(weight))])
    for j in range(C):
        sigma = found.covariance[j] if kind != "diagonal" else torch.diag(found.covariance[j])
        for y in range(C):
            for c in range(C):
                d = weight[c] - weight[y]
                assert table[j, y, c].item() == pytest.approx((d @ sigma @ d).item(), abs=1e-9)


def test_the_table_is_the_variance_of_logit_differences_over_the_samples_of_a_class():
    found, features, targets = statistics("full")
    weight, bias = torch.randn(C, A, dtype=torch.float64), torch.randn(C, dtype=torch.float64)
    logits = features @ weight.T + bias
    table = torch.stack([mapped_variances(weight, found.moments(), j) for j in range(len(weight))])
    for j in range(C):
        own = logits[targets == j]
        for y, c in ((0, 1), (2, 3), (1, 3)):
            assert table[j, y, c].item() == pytest.approx((own[:, c] - own[:, y]).var(correction=0).item(), rel=1e-9)


def test_the_means_tell_boundaries_of_a_class_from_those_of_others():
    found, _, _ = statistics("full")
    weight = torch.randn(C, A, dtype=torch.float64)
    table = torch.stack([mapped_variances(weight, found.moments(), j) for j in range(len(weight))])
    own, unrelated = [], []
    for j in range(C):
        for y in range(C):
            for c in range(y + 1, C):
                (own if j in (y, c) else unrelated).append(table[j, y, c].item())
    means = mean_mapped_variances(weight, found.moments())
    assert means.own == pytest.approx(sum(own) / len(own), rel=1e-12)
    assert means.unrelated == pytest.approx(sum(unrelated) / len(unrelated), rel=1e-12)


def test_two_classes_have_no_unrelated_boundary():
    found, _, _ = statistics("full", classes=2)
    means = mean_mapped_variances(torch.randn(2, A, dtype=torch.float64), found.moments())
    assert means.unrelated is None
    assert means.own > 0


def test_a_class_without_samples_takes_no_part():
    _, features, targets = statistics("full")
    weight = torch.randn(C, A, dtype=torch.float64)
    partial = ClassStatistics(C, A).double()
    seen = targets != 2
    partial.update(features[seen], targets[seen])
    smaller = ClassStatistics(C - 1, A).double()
    smaller.update(features[seen], torch.tensor([0, 1, -1, 2])[targets[seen]])
    found_means = mean_mapped_variances(weight, partial.moments())
    wanted = mean_mapped_variances(weight[[0, 1, 3]], smaller.moments())
    assert found_means == pytest.approx(wanted)


def test_statistics_that_saw_nothing_give_zero():
    assert mean_mapped_variances(torch.randn(C, A), ClassStatistics(C, A).moments()) == (0.0, None)


def test_many_classes_are_looked_at_by_a_part_of_them_evenly_spaced():
    found, _, _ = statistics("diagonal", classes=9, samples=90)
    weight = torch.randn(9, A, dtype=torch.float64)
    means = mean_mapped_variances(weight, found.moments(), class_limit=3)
    chosen = [0, 4, 8]
    table = torch.stack([mapped_variances(weight, found.moments(), j) for j in range(len(weight))])
    own = [table[j, j, c].item() for j in chosen for c in chosen if c != j]
    assert means.own == pytest.approx(sum(own) / len(own), rel=1e-12)
