"""D2L: the dimension of features, the turning point, the way back, and the labels after it."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.data.generators import generator_for
from icda.data.task import Batch
from icda.methods import Setup, create_method
from icda.methods.d2l import D2L, local_dimension
from icda.models.base import FeatureClassifier
from support import make_context, make_network

SETUP = Setup(num_classes=3, feature_dim=5, class_counts=torch.full((3,), 16), epochs=10, num_samples=48)
INPUTS = torch.randn(48, 4, generator=torch.Generator().manual_seed(1))
TARGETS = torch.arange(48) % 3
SMALL = {"neighbours": 4, "neighbourhood": 16, "window": 2, "start": 0.0}


@pytest.fixture
def model():
    return make_network()


def context_of(model, epoch=0):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    no_step = {"apply": lambda loss: pytest.fail("no step is taken here")}
    return make_context(model, optimizers=[optimizer], data=(INPUTS, TARGETS), epoch=epoch, num_epochs=10, **no_step)


def naive_dimension(points, neighbours):
    found = []
    for i, point in enumerate(points):
        distances = sorted(math.dist(point, other) for j, other in enumerate(points) if j != i)[:neighbours]
        total = sum(math.log(distance / distances[-1]) for distance in distances)
        found.append(-neighbours / total)
    return found


@pytest.mark.parametrize("neighbours", [2, 5, 19])
def test_the_dimension_is_the_likelihood_estimate_of_each_point(neighbours):
    points = torch.randn(20, 6, dtype=torch.float64)
    wanted = naive_dimension(points.tolist(), neighbours)
    assert local_dimension(points, neighbours).tolist() == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_points_on_a_subspace_have_about_its_dimension(dimension):
    points = torch.rand(2000, dimension) @ torch.randn(dimension, 12)
    assert float(local_dimension(points, 20).mean()) == pytest.approx(dimension, rel=0.2)


def test_points_with_nothing_but_copies_around_them_have_no_dimension():
    points = torch.cat([torch.zeros(4, 3), 100 + torch.randn(6, 3)])
    found = local_dimension(points, 3)
    assert found[:4].isnan().all()
    assert (found[4:] > 0).all()


@pytest.mark.parametrize("neighbours", [1, 10, 11])
def test_more_neighbours_than_other_points_are_refused(neighbours):
    with pytest.raises(ValueError, match=rf"neighbours must lie in 2\.\.9 for 10 rows, got {neighbours}"):
        local_dimension(torch.randn(10, 3), neighbours)


def test_an_epoch_is_measured_in_random_sets_of_features_and_changes_nothing(model):
    method, before = D2L(SETUP, **SMALL), copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    found = method.measure(context_of(model))
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    model.eval()
    with torch.no_grad():
        features = model(INPUTS).features
    order = torch.randperm(48, generator=generator_for(0, "d2l", 0))
    wanted = [value for rows in order.split(16) for value in naive_dimension(features[rows].double().tolist(), 4)]
    assert found == pytest.approx(sum(wanted) / 48, rel=1e-6)


def test_a_part_of_the_training_set_is_enough_and_small_rests_are_left_out(model):
    found = D2L(SETUP, **{**SMALL, "samples": 20}).measure(context_of(model))  # a set of 16, and 4 that are too few
    assert found > 0
    assert found != D2L(SETUP, **SMALL).measure(context_of(model))


def test_features_that_coincide_have_dimension_zero(model):
    with torch.no_grad():
        model.encoder[0].weight.zero_()
    assert D2L(SETUP, **SMALL).measure(context_of(model)) == 0


@pytest.mark.parametrize(
    ("dimensions", "epoch", "wanted"),
    [
        ([5, 4, 3, 3.1, 9], 4, True),
        ([5, 4, 3, 3.1, 3.15], 4, False),  # mean 3.05, twice the deviation 0.1
        ([5, 4, 3, 3.1, 3.16], 4, True),
        ([5, 4, 3, 3.1, 2], 4, False),
        ([5, 9], 1, False),  # too soon: the window is not full
    ],
)
def test_a_turn_is_two_deviations_above_the_window(dimensions, epoch, wanted):
    method = D2L(SETUP, **SMALL)
    method.dimensions[: len(dimensions)] = torch.tensor(dimensions, dtype=torch.float64)
    assert method.turns(epoch) is wanted


def test_it_is_not_looked_for_before_the_start_and_a_window():
    method = D2L(SETUP, **{**SMALL, "start": 0.5})
    method.dimensions[:] = torch.arange(10).square()
    assert [method.turns(epoch) for epoch in range(10)] == [False] * 7 + [True] * 3


def drive(method, model, dimensions):
    """Epochs of given dimensions, each of which moves all weights; the states at their beginnings."""
    states = []
    for epoch, value in enumerate(dimensions):
        method.measure = lambda context, value=value: value
        method.on_epoch_start(context_of(model, epoch))
        states.append(copy.deepcopy(model.state_dict()))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
    return states


def test_at_the_turn_the_network_goes_back_by_one_epoch_and_trusts_itself(model):
    method = D2L(SETUP, **SMALL)
    states = drive(method, model, [5.0, 4.0, 3.0, 3.1, 9.0])
    assert int(method.turning_epoch) == 4
    assert all(torch.equal(states[4][name], value) for name, value in states[3].items())
    assert not torch.equal(states[3]["head.weight"], states[2]["head.weight"])
    assert float(method.alpha) == pytest.approx(math.exp(-4 / 10 * 9 / 3))
    assert method.epoch_figures() == {"dimension": 9.0, "label_trust": float(method.alpha)}
    assert method.snapshot == {}


def test_after_the_turn_trust_follows_the_dimension_and_nothing_goes_back_again(model):
    method = D2L(SETUP, **SMALL)
    states = drive(method, model, [5.0, 4.0, 3.0, 3.1, 9.0, 6.0, 20.0])
    assert float(method.alpha) == pytest.approx(math.exp(-6 / 10 * 20 / 3))
    assert int(method.turning_epoch) == 4
    assert not torch.equal(states[6]["head.weight"], states[5]["head.weight"])


def test_momentum_of_the_weights_given_up_is_dropped(model):
    method, context = D2L(SETUP, **SMALL), context_of(model)
    method.snapshot = copy.deepcopy(dict(model.state_dict()))
    model(INPUTS).logits.sum().backward()
    context.optimizers[0].step()
    assert context.optimizers[0].state
    method.roll_back(context)
    assert not context.optimizers[0].state


def loss_and_logits(alpha, turned):
    model = FeatureClassifier(nn.Identity(), nn.Linear(4, 3)).double()
    method = D2L(SETUP, **SMALL)
    method.alpha.fill_(alpha)
    method.turning_epoch.fill_(3 if turned else -1)
    logits = model(INPUTS.double()).logits.detach().requires_grad_()
    batch = Batch(INPUTS, TARGETS, None, torch.arange(48))
    return method.loss(model(INPUTS.double())._replace(logits=logits), batch, context_of(model)), logits


@pytest.mark.parametrize(("alpha", "turned"), [(1.0, True), (0.3, False)])
def test_full_trust_in_the_labels_is_cross_entropy(alpha, turned):
    loss, logits = loss_and_logits(alpha, turned)
    torch.testing.assert_close(loss, F.cross_entropy(logits, TARGETS))


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_labels_are_mixed_with_the_networks_own_answers(alpha):
    loss, logits = loss_and_logits(alpha, turned=True)
    total = 0.0
    for row, target in zip(logits.log_softmax(1).tolist(), TARGETS.tolist(), strict=True):
        label = [alpha * (c == target) + (1 - alpha) * (row[c] == max(row)) for c in range(3)]
        total -= sum(weight * value for weight, value in zip(label, row, strict=True))
    assert float(loss.detach()) == pytest.approx(total / 48, rel=1e-10)
    mixed = alpha * F.one_hot(TARGETS, 3) + (1 - alpha) * F.one_hot(logits.argmax(1), 3)
    wanted = (logits.softmax(1) - mixed).detach() / 48  # the answers carry no gradient
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], wanted)


@pytest.mark.parametrize(
    "options", [{"neighbours": 48}, {"neighbours": 16, "neighbourhood": 16}, {"neighbours": 10, "samples": 10}]
)
def test_options_that_cannot_work_are_refused_before_training(options):
    with pytest.raises(ValueError, match=f"neighbours is {options['neighbours']}"):
        create_method("d2l", SETUP, options)


def test_a_training_set_smaller_than_a_neighbourhood_is_one_set(model):
    method = D2L(SETUP, neighbours=20)
    assert method.measure(context_of(model)) > 0
