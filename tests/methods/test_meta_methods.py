"""Meta-Weight-Net, MetaSAug and LSDA against naive losses and double backward."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda import ClassStatistics
from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.lsda import LSDA
from icda.methods.meta_weight_net import MetaWeightNet
from icda.methods.metasaug import MetaSAug
from icda.models import FeatureClassifier
from support import before_a_step, make_batch, make_context, meta_gradients

CLASSES, DIM, RATE = 4, 6, 0.3
METADATA = make_batch(99, size=8)
context_of = partial(make_context, rate=RATE, progress=0.5, next_metadata=lambda: METADATA)


def weight_net(groups=None, **options):
    setup = Setup(CLASSES, DIM, torch.tensor([40, 20, 10, 5]), epochs=1, num_samples=75, group_counts=groups)
    return MetaWeightNet(setup, **options).double().train()


def naive_weights(method, losses, normalise=False):
    first, _, last = method.weight_network.layers
    weights = []
    for loss in losses:
        hidden = [max(w * loss + b, 0) for w, b in zip(first.weight[:, 0].tolist(), first.bias.tolist(), strict=True)]
        output = sum(w * h for w, h in zip(last.weight[0].tolist(), hidden, strict=True)) + float(last.bias.detach())
        weights.append(1 / (1 + math.exp(-output)))
    return [w * len(weights) / sum(weights) for w in weights] if normalise else weights


@pytest.mark.parametrize("normalise", [False, True])
def test_weights_are_a_sigmoid_of_one_hidden_layer_over_the_loss(normalise):
    method, losses = weight_net(normalise=normalise), [0.01, 0.5, 2.0, 7.5]
    found = method.weights(torch.tensor(losses, dtype=torch.float64))
    assert found.tolist() == pytest.approx(naive_weights(method, losses, normalise), rel=1e-10)
    assert not normalise or float(found.detach().mean()) == pytest.approx(1)
    assert method.weight_network.layers[0].out_features == 100


@pytest.mark.parametrize("options", [{}, {"normalise": True}, {"recipe": "long_tail"}])
def test_a_step_learns_the_weights_and_then_descends_the_weighted_loss(options, model):
    method, reference, data = weight_net(**options, weight_rate=0.05), copy.deepcopy(model), make_batch(1)
    twin = copy.deepcopy(method)
    step_by_double_backward(twin, reference, data)
    losses = F.cross_entropy(reference(data.inputs).logits, data.targets, reduction="none")
    weights = torch.tensor(naive_weights(twin, losses.tolist(), bool(options)), dtype=torch.float64)
    loss = (weights * losses).mean()  # the weights are constants: no gradient goes through them
    gradients = torch.autograd.grad(loss, list(reference.parameters()))
    result = method.step(data, context_of(model))
    for mine, other in zip(method.weight_network.parameters(), twin.weight_network.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(result.loss, loss.detach(), rtol=1e-9, atol=0)
    for mine, before, gradient in zip(model.parameters(), reference.parameters(), gradients, strict=True):
        torch.testing.assert_close(mine, before - RATE * gradient, rtol=1e-9, atol=1e-12)


def step_by_double_backward(method, model, data):
    """An optimiser step on the gradient of the metadata loss through a virtual step, as the original codes have it."""
    network = method.weight_network
    first, _, last = network.layers

    def inner(logits, weight):
        losses = F.cross_entropy(logits, data.targets, reduction="none")
        read = losses if method.recipe == "long_tail" else losses.detach()
        weights = [
            torch.sigmoid((last.weight[0] * (first.weight[:, 0] * x + first.bias).relu()).sum() + last.bias[0])
            for x in read
        ]
        total = sum(weights) if method.normalise else float(len(losses))
        return sum(weight / total * x for weight, x in zip(weights, losses, strict=True))

    optimizer = torch.optim.Adam(network.parameters(), lr=0.05, weight_decay=1e-4)
    if method.recipe == "long_tail":
        settings = {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}
        optimizer = torch.optim.SGD(network.parameters(), lr=0.05, **settings)
    gradients = meta_gradients(model, data, METADATA, inner, list(network.parameters()), RATE)
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()


def test_the_recipe_says_how_the_network_learns_unless_a_rate_is_given():
    usual = weight_net(recipe="long_tail").optimizer
    assert isinstance(usual, torch.optim.SGD)
    names = ("lr", "momentum", "nesterov", "weight_decay")
    assert [usual.defaults[name] for name in names] == [1e-5, 0.9, True, 5e-4]
    noise = weight_net().optimizer
    assert isinstance(noise, torch.optim.Adam)
    assert (noise.defaults["lr"], noise.defaults["weight_decay"]) == (1e-3, 1e-4)
    assert weight_net(recipe="long_tail", weight_rate=0.0).optimizer.defaults["lr"] == 0
    with pytest.raises(ValueError, match=r"recipe .*'tail'"):
        weight_net(recipe="tail")


def test_before_the_start_it_is_cross_entropy(model):
    method = weight_net(start=0.5)
    wanted = F.cross_entropy(model(make_batch(1).inputs).logits, make_batch(1).targets).detach()
    result = method.step(make_batch(1), context_of(model, progress=0.49))
    torch.testing.assert_close(result.loss, wanted, rtol=1e-14, atol=0)
    assert result.extra == {}
    assert method.epoch_figures() == {}


def test_the_weights_given_out_are_logged_by_class_and_group(model):
    method, data = (
        weight_net(groups=torch.tensor([40, 35]), weight_rate=0.0),
        make_batch(1)._replace(groups=torch.arange(9) % 2),
    )
    losses = F.cross_entropy(model(data.inputs).logits, data.targets, reduction="none").tolist()
    weights = naive_weights(method, losses)
    method.step(data, context_of(model))
    figures = method.epoch_figures()
    assert figures.keys() == {"weight_mean", "weight_by_class", "weight_by_group"}
    assert figures["weight_mean"] == pytest.approx(sum(weights) / 9)
    assert figures["weight_by_class"][3] == pytest.approx((weights[3] + weights[7]) / 2)
    assert figures["weight_by_group"][1] == pytest.approx(sum(weights[1::2]) / 4)


COUNTS = torch.tensor([400, 200, 100, 5])
metasaug_context = partial(make_context, rate=RATE, next_metadata=lambda: METADATA)


def metasaug(**options):
    return MetaSAug(Setup(CLASSES, DIM, COUNTS, epochs=1, num_samples=705), **options).double().train()


def class_weights():
    raw = [(1 - 0.9999) / (1 - 0.9999**n) for n in COUNTS.tolist()]
    return [value * CLASSES / sum(raw) for value in raw]


def naive_metasaug(logits, targets, weight, cov, lam):
    total = torch.zeros((), dtype=torch.float64)
    for i, y in enumerate(targets.tolist()):
        differences = [weight[c] - weight[y] for c in range(CLASSES)]
        spread = [(d @ cov[y] @ d).clamp(min=0) for d in differences]  # a corrected covariance may be indefinite
        adjusted = torch.stack([logits[i, c] + lam / 2 * spread[c] for c in range(CLASSES)])
        total = total + class_weights()[y] * (torch.logsumexp(adjusted, 0) - adjusted[y])
    return total / sum(class_weights()[y] for y in targets.tolist())


def test_before_the_start_it_is_cross_entropy_without_statistics(model):
    method, plain = metasaug(), copy.deepcopy(model)
    for k in range(3):
        wanted = F.cross_entropy(plain(make_batch(k).inputs).logits, make_batch(k).targets)
        gradients = torch.autograd.grad(wanted, list(plain.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(plain.parameters(), gradients, strict=True):
                parameter -= RATE * gradient
        result = method.step(make_batch(k), metasaug_context(model, progress=0.79))
        assert torch.equal(result.loss, wanted.detach())
        assert result.extra == {}
    for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-14)
    assert float(method.criterion.statistics.count.sum()) == 0
    assert "meta_loss" in method.step(make_batch(3), metasaug_context(model, progress=0.8)).extra


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_the_real_loss_is_class_balanced_isda_with_covariances_stepped_along_their_gradients(kind, model):
    method, context = metasaug(start=0.5, statistics_rate=10.0, covariance=kind), metasaug_context(model, progress=0.9)
    twin, data, output = before_a_step(method, model, context)
    tensors, inner = twin.outer(output, data, context)
    assert len(tensors) == 1, "MetaSAug corrects covariances, not means"
    before = tensors[0].detach()
    weight, targets = model.head.weight, data.targets
    plain = torch.diag_embed(before) if kind == "diagonal" else before
    torch.testing.assert_close(
        inner(output.logits, weight), naive_metasaug(output.logits, targets, weight, plain, 0.45), rtol=1e-9, atol=0
    )
    (gradient,) = meta_gradients(model, data, METADATA, inner, tensors, RATE)
    stepped = before - 10.0 * gradient
    cov = torch.diag_embed(stepped) if kind == "diagonal" else (stepped + stepped.mT) / 2
    assert (cov - plain).abs().max() > 1e-3, "a correction too small to see proves nothing"
    wanted = naive_metasaug(output.logits, targets, weight, cov, 0.45).detach()
    torch.testing.assert_close(method.step(data, context).loss, wanted, rtol=1e-9, atol=0)


def test_a_correction_serves_one_step_and_the_running_statistics_are_plain_sums(model):
    method, plain = metasaug(start=0.0, statistics_rate=5.0), ClassStatistics(CLASSES, DIM).double()
    for k in range(3):
        with torch.no_grad():
            plain.update(model(make_batch(k).inputs).features, make_batch(k).targets)
        method.step(make_batch(k), metasaug_context(model, progress=0.9))
    for name, value in plain.state_dict().items():
        assert torch.equal(method.criterion.statistics.state_dict()[name], value), name


def test_between_looks_ahead_the_running_covariances_are_used(model):
    method, context = metasaug(start=0.0, every=2, statistics_rate=10.0), metasaug_context(model, progress=0.9)
    method.step(make_batch(0), context)
    context.iteration, plain = 1, copy.deepcopy(method.criterion.statistics)
    output = model(make_batch(1).inputs)
    plain.update(output.features, make_batch(1).targets)
    wanted = naive_metasaug(output.logits, make_batch(1).targets, model.head.weight, plain.covariance, 0.45)
    torch.testing.assert_close(method.step(make_batch(1), context).loss, wanted.detach(), rtol=1e-9, atol=0)


def test_the_published_weights_are_the_default():
    assert metasaug().weights.tolist() == pytest.approx(class_weights())
    alike = metasaug(effective_beta=0.0).weights
    assert torch.equal(alike, torch.ones(CLASSES, dtype=torch.float64))


def lsda(**options):
    setup = Setup(CLASSES, DIM, torch.tensor([40, 20, 10, 5]), epochs=1, num_samples=75)
    return LSDA(setup, **{"hidden": 8, **options}).double().train()


def naive_variances(network, features):
    first, last = (layer for layer in network.modules() if isinstance(layer, nn.Linear))
    hidden = torch.relu(features @ first.weight.T + first.bias)
    return 1 / (1 + torch.exp(-(hidden @ last.weight.T + last.bias)))


def naive_lsda(logits, targets, weight, variances, lam):
    losses = []
    for i, y in enumerate(targets.tolist()):
        differences = [weight[c] - weight[y] for c in range(CLASSES)]
        terms = [lam / 2 * (d * variances[i] * d).sum() for d in differences]
        adjusted = torch.stack([logits[i, c] + term for c, term in enumerate(terms)])
        losses.append(torch.logsumexp(adjusted, 0) - adjusted[y])
    return torch.stack(losses).mean()


def test_the_loss_augments_each_sample_along_its_own_variances(model):
    method, data = lsda(lambda0=10.0), make_batch(1)
    output = model(data.inputs)
    variances = naive_variances(method.covariance_network, output.features).detach()
    wanted = naive_lsda(output.logits, data.targets, model.head.weight, variances, lam=8.0)
    found = method.loss(output, data, make_context(model, rate=RATE, progress=0.8))
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=0)
    gradients = [torch.autograd.grad(loss, list(model.parameters()), retain_graph=True) for loss in (found, wanted)]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-12)
    plain = method.loss(model(data.inputs), data, make_context(model, rate=RATE, progress=0.0))
    torch.testing.assert_close(plain, F.cross_entropy(model(data.inputs).logits, data.targets))


def half_gradient(method, model, data, *halves):
    """A virtual step on one half, its loss on the other."""
    one, other = (Batch(data.inputs[rows], data.targets[rows], None, data.index[rows]) for rows in halves)
    variances = naive_variances(method.covariance_network, model(one.inputs).features.detach())

    def inner(logits, weight):
        return naive_lsda(logits, one.targets, weight, variances, lam=8.0)

    return meta_gradients(model, one, other, inner, list(method.covariance_network.parameters()), RATE)


@pytest.mark.parametrize("size", [8, 9])
def test_each_half_of_the_batch_is_the_metadata_of_the_other(size, model):
    method, data, half = lsda(lambda0=10.0, covariance_rate=50.0), make_batch(1, size), size // 2
    first, second = slice(0, half), slice(half, size)
    gradients = [half_gradient(method, model, data, *pair) for pair in ((first, second), (second, first))]
    before = [parameter.detach().clone() for parameter in method.covariance_network.parameters()]
    wanted = [value - 50.0 * (a + b) / 2 for value, a, b in zip(before, *gradients, strict=True)]
    result = method.step(data, make_context(model, rate=RATE, progress=0.8))
    assert result.extra["meta_loss"] > 0
    moved = 0.0
    for mine, other, old in zip(method.covariance_network.parameters(), wanted, before, strict=True):
        torch.testing.assert_close(mine.detach(), other, rtol=1e-8, atol=1e-11)
        moved = max(moved, float((other - old).abs().max()))
    assert moved > 1e-4, "a step too small to see proves nothing"


def test_halves_of_a_dict_of_inputs_are_cut_along_the_samples(model):
    class Summed(nn.Module):
        def forward(self, inputs):
            return inputs["left"] + inputs["right"]

    wrapped = FeatureClassifier(nn.Sequential(Summed(), copy.deepcopy(model.encoder)), copy.deepcopy(model.head))
    data, method = make_batch(1), lsda()
    left = torch.randn_like(data.inputs)
    parts = data._replace(inputs={"left": left, "right": data.inputs - left})
    twin = copy.deepcopy(method)
    method.step(data, make_context(model, rate=RATE, progress=0.8))
    twin.step(parts, make_context(wrapped, rate=RATE, progress=0.8))
    for mine, other in zip(method.covariance_network.parameters(), twin.covariance_network.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-12)


def test_before_the_start_the_variances_are_not_learned(model):
    method = lsda(start=0.9)
    before = copy.deepcopy(method.covariance_network.state_dict())
    assert method.step(make_batch(1), make_context(model, rate=RATE, progress=0.8)).extra == {}
    for name, value in method.covariance_network.state_dict().items():
        assert torch.equal(value, before[name])
