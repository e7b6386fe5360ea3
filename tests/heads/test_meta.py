from dataclasses import replace

import pytest
import torch

from icda.functional.strength import Strength, direct_strength
from icda.heads.meta import MetaSettings, MetaVariables, _Fold, fit_meta_head
from icda.heads.problem import LossSettings, Problem, rebalance
from icda.heads.solver import fit_head


def biased(size, agreement, seed, decay=0.02):
    """Two classes, a weak core feature, and a strong attribute that goes with the class in `agreement` of all samples."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(size) % 2
    attribute = torch.where(torch.rand(size, generator=generator) < agreement, targets, 1 - targets)
    features = torch.randn(size, 10, generator=generator)
    features[:, 0] += 1.2 * (2 * targets - 1)
    features[:, 1] += 2.5 * (2 * attribute - 1)
    return Problem.plain(features, targets, 2, decay), attribute


def worst_group(head):
    problem, attribute = biased(4000, 0.5, seed=9)
    hits = head.logits(problem.features).argmax(1) == problem.targets
    groups = 2 * problem.targets + attribute
    return min(float(hits[groups == group].double().mean()) for group in range(4))


def learned(**options):
    problem, attribute = biased(800, 0.95, seed=0)
    metadata, other = biased(160, 0.5, seed=1)
    options = {"strengths_as": "weights", **options}
    loss = LossSettings("icda", 0.5, 0.1) if options["strengths_as"] == "margins" else LossSettings("ce")
    labels = 2 * metadata.targets + other
    found = fit_meta_head(problem, metadata, labels, loss, MetaSettings(**options))
    return found, problem, attribute, labels


def test_metadata_teach_the_head_what_the_bias_hides():
    found, problem, _, _ = learned()
    plain = worst_group(fit_head(problem, LossSettings("ce")))
    assert worst_group(found.head) > plain + 0.15


def test_strengths_rise_where_the_attribute_speaks_against_the_label():
    found, problem, attribute, _ = learned(use_metadata=False, steps=25)
    hurt = attribute != problem.targets
    for label in (0, 1):
        rows = problem.targets == label
        assert float(found.strengths[rows & hurt].mean()) > 1.5 * float(found.strengths[rows & ~hurt].mean())


def test_outer_loss_falls():
    found, *_ = learned()
    assert found.outer_losses[-1] < found.outer_losses[0]


def test_the_papers_form_learns_nothing_but_strengths():
    found, *_ = learned(strengths_as="margins", use_metadata=False, class_margins=False, steps=3)
    assert found.share == 0
    assert float(found.margins.abs().max()) == 0


def test_the_head_that_is_returned_has_the_learned_strengths_in_its_margins():
    problem, _ = biased(800, 0.95, seed=0)
    metadata, other = biased(160, 0.5, seed=1)
    loss = LossSettings("icda", 0.5, 3.0)
    settings = MetaSettings(strengths_as="margins", use_metadata=False, class_margins=False, steps=3)
    found = fit_meta_head(problem, metadata, 2 * metadata.targets + other, loss, settings)
    angles = direct_strength(problem.features, problem.targets, found.head.weight)
    told = replace(problem, strength=Strength(angles.per_class, found.strengths))
    again = fit_head(told, loss, 200, 1e-4, rounds=1, start=found.head)
    by_angles = fit_head(problem, loss, 200, 1e-4)
    near, far = ((head.weight - found.head.weight).abs().max() for head in (again, by_angles))
    assert float(near) < 0.1 * float(far), "it is an optimum with the learned strengths, not with the head's own angles"


def test_no_head_judges_what_it_was_fitted_to():
    """With pure-noise labels on metadata, cross-fitted hits stay near chance although the fit could learn them."""
    problem, _ = biased(100, 0.5, seed=0, decay=1e-4)
    generator = torch.Generator().manual_seed(3)
    targets = torch.arange(120) % 2
    ones = torch.ones(120)
    noise = Problem(
        torch.randn(120, 200, generator=generator), targets, 2, ones, ones, torch.ones(2).double() * 60, 1e-4
    )
    wide = Problem(
        torch.randn(100, 200, generator=generator),
        problem.targets,
        2,
        torch.ones(100),
        torch.ones(100),
        torch.bincount(problem.targets).double(),
        1e-4,
    )
    found = fit_meta_head(wide, noise, targets, LossSettings("ce"), MetaSettings(steps=2))
    seen = float((found.head.logits(noise.features).argmax(1) == targets).double().mean())
    judged = float((found.metadata_logits.argmax(1) == targets).double().mean())
    assert seen > 0.9
    assert judged < 0.7


def test_seed_decides_all():
    first, second = (learned(steps=2, seed=4)[0] for _ in range(2))
    assert torch.equal(first.head.weight, second.head.weight)
    assert not torch.equal(first.strengths, learned(steps=2, seed=5)[0].strengths)


def test_global_random_state_is_left_alone():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    learned(steps=1)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("name", ["ce", "la", "isda", "icda"])
def test_every_loss_takes_part(name):
    problem, _ = biased(200, 0.9, seed=0)
    metadata, _ = biased(80, 0.5, seed=1)
    found = fit_meta_head(problem, metadata, metadata.targets, LossSettings(name), MetaSettings(steps=2))
    assert torch.isfinite(found.head.weight).all()
    assert 0 < found.share < 1


def test_the_prior_of_the_training_samples_does_not_reach_metadata():
    """With the prior of the attribute the shortcut is undone without a single outer step."""
    problem, attribute = biased(800, 0.95, seed=0)
    metadata, other = biased(160, 0.5, seed=1)
    labels, nothing = 2 * metadata.targets + other, MetaSettings(steps=0)
    plain = fit_meta_head(problem, metadata, labels, LossSettings("ce"), nothing)
    prior = fit_meta_head(rebalance(problem, attribute, "prior"), metadata, labels, LossSettings("ce"), nothing)
    assert worst_group(prior.head) > worst_group(plain.head) + 0.05


@pytest.mark.parametrize(("output", "beta"), [("sigmoid", 0.5), ("tanh", 5.0), ("linear", 3.0)])
def test_the_gradient_in_the_strength_network_is_that_of_refitting(output, beta):
    """Without covariances: the angles in front of them are read off the head, and held fixed in the gradient."""
    (problem, _), (metadata, other) = biased(60, 0.9, seed=0, decay=0.05), biased(40, 0.5, seed=1)
    problem, metadata = as_doubles(problem), as_doubles(metadata)
    settings = MetaSettings(strength_output=output, use_metadata=False, class_margins=False, max_iter=3000, tol=1e-12)
    outer = MetaVariables(problem, len(other), settings).double()
    outer.described = outer.described.double()
    everything, loss = torch.ones(40, dtype=torch.bool), LossSettings("icda", 0.0, beta)
    fold = _Fold(problem, metadata, everything, everything, 2 * metadata.targets + other, settings)
    fold.backward(outer, loss)
    last = outer.network.layers[-1].weight
    slopes, step = last.grad[0], 1e-3
    for place in slopes.abs().topk(3).indices.tolist():
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                last[0, place] += sign * step
                head = fold.fit(outer, loss)
                values.append(float(fold._outer_loss(head.logits(fold.judged))))
                last[0, place] -= sign * step
        assert float(slopes[place]) == pytest.approx((values[0] - values[1]) / (2 * step), rel=2e-3)


def as_doubles(problem):
    ones = torch.ones(len(problem.targets), dtype=torch.float64)
    return replace(problem, features=problem.features.double(), weights=ones, statistics_weights=ones)
