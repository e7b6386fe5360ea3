import torch

from icda.heads.folds import contrast_groups
from icda.heads.problem import Problem
from support import shortcut_data


def biased_problem(agreement=0.95, size=1200):
    """Two classes, a weak core feature and a strong attribute that goes with the class in most samples."""
    features, targets, attribute = map(torch.from_numpy, shortcut_data(size, agreement, 12, (1, 1.6), (1, 3.0)))
    return Problem.plain(features, targets, 2, 0.01), attribute


def test_guesses_depend_on_the_seed_alone():
    problem, _ = biased_problem(size=300)
    first, second = (contrast_groups(problem, rounds=1, repeats=1, seed=5) for _ in range(2))
    assert torch.equal(first.tie, second.tie)


def test_without_rounds_the_group_is_what_the_biased_head_gets_wrong():
    problem, attribute = biased_problem()
    found = contrast_groups(problem, rounds=0, repeats=1)
    assert 0 < int(found.hurt.sum()) < 0.2 * len(attribute)
    wrong_share = float((attribute != problem.targets)[found.hurt].double().mean())
    assert wrong_share > 0.5


def test_the_attribute_is_the_class_the_shortcut_speaks_for():
    problem, attribute = biased_problem()
    found = contrast_groups(problem, rounds=3, repeats=1)
    assert float((found.attributes == attribute).double().mean()) > 0.95
    assert torch.equal(found.attributes == problem.targets, ~found.hurt)
