from typing import Any

import torch

from icda.explain.passes import run_pass
from icda.explain.strengths import most_tied, sample_strengths, strength_figures, tie_matrix
from icda.functional.strength import Strength, direct_strength
from icda.methods import Setup, create_method


def test_methods_without_strengths_are_read_by_angles(coloured: Any) -> None:
    task, networks, _ = coloured
    method = create_method("cross_entropy", Setup.of(task, networks[0], 1))
    seen = run_pass(method, networks, task.train)
    found, wanted = sample_strengths(method, seen), direct_strength(seen.features, seen.targets, seen.weight)
    assert torch.equal(found.per_class, wanted.per_class)
    assert torch.equal(found.per_sample, wanted.per_sample)


def test_icda_is_read_with_its_own_option(coloured: Any) -> None:
    task, networks, _ = coloured
    method = create_method("icda", Setup.of(task, networks[0], 1), {"sample_strength": "mean"})
    found = sample_strengths(method, run_pass(method, networks, task.train))
    torch.testing.assert_close(found.per_sample, found.per_class.sum(1) / (task.num_classes - 1))


def test_meta_icda_is_read_by_its_network_whose_mode_stays(coloured: Any) -> None:
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


def test_the_tie_matrix_is_a_mean_over_the_samples_of_a_class() -> None:
    targets = torch.tensor([0, 2, 0, 2, 2])
    per_class = torch.rand(5, 3).scatter(1, targets[:, None], 0)
    found = tie_matrix(per_class, targets)
    for row in range(3):
        own = [per_class[i].double() for i in range(5) if targets[i] == row]
        wanted = sum(own) / len(own) if own else torch.zeros(3, dtype=torch.float64)
        torch.testing.assert_close(found[row], wanted)


def test_figures_count_every_sample_by_its_strongest_tie() -> None:
    targets = torch.tensor([0, 1, 1])
    strength = Strength(torch.tensor([[0.0, 0.51], [0.01, 0.0], [1.0, 0.0]]), torch.tensor([0.2, 0.4, 1.0]))
    figures = strength_figures(strength, targets)
    assert figures["counts"][0][20] == 1  # 0.51 lies in the 21st of 40 bins
    assert figures["counts"][1][0] == 1
    assert figures["counts"][1][-1] == 1
    assert sum(map(sum, figures["counts"])) == sum(map(sum, figures["sample_counts"])) == 3


def test_the_most_tied_come_strongest_first_with_the_class_they_are_tied_to() -> None:
    per_class = torch.rand(30, 4)
    places, towards, strongest = most_tied(Strength(per_class, torch.zeros(30)), top=5)
    order = sorted(range(30), key=lambda i: -per_class[i].max().item())[:5]
    assert places.tolist() == order
    assert towards.tolist() == [int(per_class[i].argmax()) for i in order]
    assert strongest.tolist() == [per_class[i].max().item() for i in order]
