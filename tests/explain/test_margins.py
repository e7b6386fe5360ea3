import pytest
import torch

from icda.explain.counterfactual import TiedSamples
from icda.explain.margins import (
    Pass,
    adjusted_margins,
    edges_around_zero,
    histograms,
    margin_figures,
    margins,
    means_by,
    run_pass,
    sample_distances,
    sample_strengths,
    strength_figures,
    tie_matrix,
)
from icda.functional.strength import Strength, direct_strength
from icda.methods import Setup, create_method

SETUP = Setup(3, 5, torch.tensor([9, 3, 1]), epochs=1, num_samples=13)


def make_pass(classes=3, samples=20, size=5):
    features, weight, bias = torch.randn(samples, size), torch.randn(classes, size), torch.randn(classes)
    logits = features @ weight.T + bias
    targets = torch.arange(samples) % classes
    return Pass(torch.arange(samples), features, logits, logits.argmax(1), targets, targets % 2, weight, bias)


def test_a_margin_is_the_logit_of_the_target_less_the_best_of_the_others():
    logits, targets = torch.randn(30, 4, dtype=torch.float64), torch.arange(30) % 4
    for row, target, found in zip(logits.tolist(), targets.tolist(), margins(logits, targets).tolist(), strict=True):
        assert found == row[target] - max(value for c, value in enumerate(row) if c != target)


@pytest.mark.parametrize("name", ["logit_adjustment", "icda"])
def test_it_is_the_margin_of_logits_plus_adjustment(name):
    found = make_pass()
    method = create_method(name, SETUP)
    adjustment = method.criterion.adjustment(found.features, found.targets, (found.weight, found.bias))
    wanted = margins(found.logits + adjustment, found.targets)
    torch.testing.assert_close(adjusted_margins(method, found), wanted)
    assert not torch.equal(wanted, margins(found.logits, found.targets))
    if name == "icda":
        assert method.criterion.statistics.count.sum() == 0, "statistics stay as they are"
    assert adjusted_margins(create_method("cross_entropy", SETUP), found) is None


def test_every_sample_is_counted_once_in_the_row_of_its_class_and_of_its_group():
    values, targets, groups = torch.randn(50), torch.arange(50) % 3, torch.arange(50) % 2
    figures = margin_figures(values, targets, 3, groups)
    assert [sum(row) for row in figures["counts"]] == [17, 17, 16]
    assert [sum(row) for row in figures["group_counts"]] == [25, 25]
    assert all(len(row) == len(figures["edges"]) - 1 for row in figures["counts"])
    bars = zip(*figures["counts"], figures["edges"][1:], strict=True)
    left = sum(sum(counts) for *counts, edge in bars if edge <= 1e-12)
    assert left == int((values < 0).sum()), "bars left of zero are the wrong samples"
    assert figures["share_negative"] == pytest.approx(left / 50)


@pytest.mark.parametrize(
    "values", [[0.0, 0.0], [5.0], [-3.0], [-1.0, 1e-9], [1e6, -1e-6]], ids=["zero", "above", "below", "tiny", "wide"]
)
def test_edges_cover_all_values_and_hold_zero(values):
    edges = edges_around_zero(torch.tensor(values))
    assert 0.0 in edges.tolist()
    assert edges[0] <= min(values)
    assert edges[-1] >= max(values)
    assert (edges.diff() > 0).all()
    assert len(edges) <= 42


def test_histograms_agree_with_counting_by_hand():
    edges = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    values, labels = torch.tensor([0.0, 0.5, 1.0, 2.0, 1.5]), torch.tensor([0, 0, 0, 1, 1])
    assert histograms(values, labels, 2, edges) == [[2, 1], [0, 2]]
    assert means_by(torch.tensor([1.0, 3.0]), torch.tensor([0, 0]), 2) == [2.0, None]


def test_a_sample_is_as_far_as_its_nearest_boundary():
    features, weight, bias = torch.randn(20, 3).double(), torch.randn(4, 3).double(), torch.randn(4).double()
    targets = torch.arange(20) % 4
    logits = features @ weight.T + bias
    for row, target, found in zip(logits, targets.tolist(), sample_distances(logits, targets, weight), strict=True):
        wanted = min(
            ((row[target] - row[c]) / (weight[target] - weight[c]).norm()).item() for c in range(4) if c != target
        )
        assert found.item() == pytest.approx(wanted, rel=1e-9)
    larger = sample_distances(features @ (7 * weight).T + 7 * bias, targets, 7 * weight)
    torch.testing.assert_close(larger, sample_distances(logits, targets, weight))  # larger weights alone change nothing
    twins = torch.tensor([[1.0], [1.0], [-1.0]])  # no boundary between the first two
    assert sample_distances(torch.tensor([[2.0, 2.0, -2.0]]), torch.tensor([0]), twins).item() == 2.0


def test_methods_without_strengths_are_read_by_angles_and_icda_with_its_own_option(coloured):
    task, networks, _ = coloured
    method = create_method("cross_entropy", Setup.of(task, networks[0], 1))
    seen = run_pass(method, networks, task.train)
    found, wanted = sample_strengths(method, seen), direct_strength(seen.features, seen.targets, seen.weight)
    assert torch.equal(found.per_class, wanted.per_class)
    assert torch.equal(found.per_sample, wanted.per_sample)
    method = create_method("icda", Setup.of(task, networks[0], 1), {"sample_strength": "mean"})
    found = sample_strengths(method, run_pass(method, networks, task.train))
    torch.testing.assert_close(found.per_sample, found.per_class.sum(1) / (task.num_classes - 1))


def test_meta_icda_is_read_by_its_network_whose_mode_stays(coloured):
    task, networks, _ = coloured
    method = create_method("meta_icda", Setup.of(task, networks[0], 1)).train()
    seen = run_pass(method, networks, task.train)
    found = sample_strengths(method, seen)
    assert method.strength_network.training
    method.eval()
    with torch.no_grad():
        described = method.characteristics(seen.logits, seen.features, seen.targets, seen.weight)
        torch.testing.assert_close(found.per_sample, method.strength_network(described))
    assert not torch.equal(found.per_sample, direct_strength(seen.features, seen.targets, seen.weight).per_sample)


def test_the_tie_matrix_is_a_mean_over_the_samples_of_a_class():
    targets = torch.tensor([0, 2, 0, 2, 2])
    per_class = torch.rand(5, 3).scatter(1, targets[:, None], 0)
    found = tie_matrix(per_class, targets)
    for row in range(3):
        own = [per_class[i].double() for i in range(5) if targets[i] == row]
        wanted = sum(own) / len(own) if own else torch.zeros(3, dtype=torch.float64)
        torch.testing.assert_close(found[row], wanted)


def test_figures_count_every_sample_by_its_strongest_tie():
    targets = torch.tensor([0, 1, 1])
    strength = Strength(torch.tensor([[0.0, 0.51], [0.01, 0.0], [1.0, 0.0]]), torch.tensor([0.2, 0.4, 1.0]))
    figures = strength_figures(strength, targets)
    assert figures["counts"][0][20] == 1  # 0.51 lies in the 21st of 40 bins
    assert figures["counts"][1][0] == 1
    assert figures["counts"][1][-1] == 1
    assert sum(map(sum, figures["counts"])) == sum(map(sum, figures["sample_counts"])) == 3


def test_the_most_tied_come_strongest_first_with_the_class_they_are_tied_to():
    per_class = torch.rand(30, 4)
    tied = TiedSamples.of(None, None, Strength(per_class, torch.zeros(30)), 5)
    order = sorted(range(30), key=lambda i: -per_class[i].max().item())[:5]
    assert tied.places.tolist() == order
    assert tied.towards.tolist() == [int(per_class[i].argmax()) for i in order]
    assert tied.strengths.tolist() == [per_class[i].max().item() for i in order]
