import pytest
import torch

from icda.explain.margins import (
    adjusted_margins,
    edges_around_zero,
    histograms,
    margin_figures,
    margins,
    means_by,
    sample_distances,
)
from icda.explain.passes import Pass
from icda.methods import Setup, create_method

SETUP = Setup(3, 5, torch.tensor([9, 3, 1]), epochs=1, num_samples=13)


def seen(classes: int = 3, samples: int = 20, size: int = 5) -> Pass:
    features, weight, bias = torch.randn(samples, size), torch.randn(classes, size), torch.randn(classes)
    logits = features @ weight.T + bias
    targets = torch.arange(samples) % classes
    return Pass(torch.arange(samples), features, logits, logits.argmax(1), targets, targets % 2, weight, bias)


def test_a_margin_is_the_logit_of_the_target_less_the_best_of_the_others() -> None:
    logits, targets = torch.randn(30, 4, dtype=torch.float64), torch.arange(30) % 4
    for row, target, found in zip(logits.tolist(), targets.tolist(), margins(logits, targets).tolist(), strict=True):
        assert found == row[target] - max(value for c, value in enumerate(row) if c != target)


class TestAdjusted:
    @pytest.mark.parametrize("name", ["logit_adjustment", "icda"])
    def test_it_is_the_margin_of_logits_plus_adjustment(self, name: str) -> None:
        found = seen()
        method = create_method(name, SETUP)
        adjustment = method.criterion.adjustment(found.features, found.targets, (found.weight, found.bias))
        wanted = margins(found.logits + adjustment, found.targets)
        torch.testing.assert_close(adjusted_margins(method, found), wanted)
        assert not torch.equal(wanted, margins(found.logits, found.targets))

    def test_a_method_without_adjustment_has_none(self) -> None:
        assert adjusted_margins(create_method("cross_entropy", SETUP), seen()) is None

    def test_statistics_stay_as_they_are(self) -> None:
        method = create_method("icda", SETUP).train()
        adjusted_margins(method, seen())
        assert method.criterion.statistics.count.sum() == 0


class TestFigures:
    def test_every_sample_is_counted_once_in_the_row_of_its_class_and_of_its_group(self) -> None:
        values, targets, groups = torch.randn(50), torch.arange(50) % 3, torch.arange(50) % 2
        figures = margin_figures(values, targets, 3, groups)
        assert [sum(row) for row in figures["counts"]] == [17, 17, 16]
        assert [sum(row) for row in figures["group_counts"]] == [25, 25]
        assert all(len(row) == len(figures["edges"]) - 1 for row in figures["counts"])

    def test_bars_left_of_zero_are_the_wrong_samples(self) -> None:
        values = torch.randn(200)
        figures = margin_figures(values, torch.zeros(200, dtype=torch.long), 2)
        left = sum(
            count for count, edge in zip(figures["counts"][0], figures["edges"][1:], strict=True) if edge <= 1e-12
        )
        assert left == int((values < 0).sum())
        assert figures["share_negative"] == pytest.approx(left / 200)

    def test_a_class_without_samples_has_no_mean(self) -> None:
        assert means_by(torch.tensor([1.0, 3.0]), torch.tensor([0, 0]), 2) == [2.0, None]


@pytest.mark.parametrize(
    "values", [[0.0, 0.0], [5.0], [-3.0], [-1.0, 1e-9], [1e6, -1e-6]], ids=["zero", "above", "below", "tiny", "wide"]
)
def test_edges_cover_all_values_and_hold_zero(values: list[float]) -> None:
    edges = edges_around_zero(torch.tensor(values))
    assert 0.0 in edges.tolist()
    assert edges[0] <= min(values)
    assert edges[-1] >= max(values)
    assert (edges.diff() > 0).all()
    assert len(edges) <= 42


def test_histograms_agree_with_counting_by_hand() -> None:
    edges = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    values, labels = torch.tensor([0.0, 0.5, 1.0, 2.0, 1.5]), torch.tensor([0, 0, 0, 1, 1])
    assert histograms(values, labels, 2, edges) == [[2, 1], [0, 2]]


def test_a_sample_is_as_far_as_its_nearest_boundary() -> None:
    features, weight, bias = torch.randn(20, 3).double(), torch.randn(4, 3).double(), torch.randn(4).double()
    targets = torch.arange(20) % 4
    logits = features @ weight.T + bias
    for row, target, found in zip(logits, targets.tolist(), sample_distances(logits, targets, weight), strict=True):
        wanted = min(
            ((row[target] - row[c]) / (weight[target] - weight[c]).norm()).item() for c in range(4) if c != target
        )
        assert found.item() == pytest.approx(wanted, rel=1e-9)


def test_larger_weights_alone_change_no_distance() -> None:
    features, weight, targets = torch.randn(9, 3), torch.randn(3, 3), torch.arange(9) % 3
    found = [sample_distances(features @ (k * weight).T, targets, k * weight) for k in (1.0, 7.0)]
    torch.testing.assert_close(*found)


def test_a_class_without_a_boundary_is_left_out_of_the_nearest() -> None:
    weight = torch.tensor([[1.0], [1.0], [-1.0]])
    assert sample_distances(torch.tensor([[2.0, 2.0, -2.0]]), torch.tensor([0]), weight).item() == 2.0
