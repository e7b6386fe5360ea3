"""Meta-ICDA against a naive ICDA loss with given strengths and statistics, and its ways of keeping them."""

import copy
import math
from functools import partial

import pytest
import torch

from icda import ClassStatistics, StrengthNetwork
from icda.meta.moments import assign
from icda.methods import Setup, create_method, meta_icda
from icda.methods.meta_icda import MetaICDAMethod
from support import before_a_step, make_batch, make_context, meta_gradients

CLASSES, DIM, RATE = 4, 6, 0.3
COUNTS = torch.tensor([40, 20, 10, 5])
KINDS = ("full", "diagonal", "low_rank")
METADATA = make_batch(99, size=8)
context_of = partial(make_context, rate=RATE, progress=0.7, next_metadata=lambda: METADATA)


def make(**options):
    setup = Setup(CLASSES, DIM, COUNTS, epochs=1, num_samples=75)
    return MetaICDAMethod(setup, **options).double().train()


def run(method, model, steps, progress=0.7):
    context, results = context_of(model, progress=progress), []
    for k in range(steps):
        context.iteration = k
        results.append(method.step(make_batch(k), context))
    return results


def naive_icda(output, targets, weight, alpha, mean, cov):
    """Cross entropy of z + phi-hat at progress 0.7, sample by sample and class by class (mathematics 0)."""
    lam, losses = 0.5 * 0.7, []
    features, logits = output.features.detach(), output.logits
    for i, y in enumerate(targets.tolist()):
        cosine = [float(features[i] @ w / (features[i].norm() * w.norm())) for w in weight.detach()]
        tie = [0 if c == y else max(cosine[c], 0) / (CLASSES - 1) for c in range(CLASSES)]
        adjusted = []
        for c in range(CLASSES):
            d = weight[c] - weight[y]
            mixed = cov[y] + sum(tie[j] * cov[j] for j in range(CLASSES) if j != y)
            prior = math.log(COUNTS[c] / COUNTS[y])
            phi = lam / 2 * (d @ mixed @ d).clamp(min=0) + lam * tie[c] * (d @ mean[c]) + prior + 0.1 * alpha[i]
            adjusted.append(logits[i, c] + (0 if c == y else phi))
        losses.append(torch.logsumexp(torch.stack(adjusted), 0) - adjusted[y])
    return torch.stack(losses).mean()


def dense(statistics):
    cov = statistics.covariance
    return torch.diag_embed(cov) if cov.dim() == 2 else cov


def constant_network(value):
    network = StrengthNetwork()
    with torch.no_grad():
        network.layers[-1].weight.zero_()
        network.layers[-1].bias.fill_(math.log(value / (1 - value)))
    return network


@pytest.mark.parametrize("kind", KINDS)
def test_with_nothing_to_learn_it_is_icda_with_a_constant_strength(kind, model):
    method = make(covariance=kind, statistics_rate=0, strength_rate=0, strength_network=constant_network(0.3))
    statistics = ClassStatistics(CLASSES, DIM, kind).double()
    for k in range(3):
        data, reference = make_batch(k), copy.deepcopy(model)
        output = reference(data.inputs)
        statistics.update(output.features, data.targets)
        mean, cov, alpha = statistics.mean, dense(statistics), torch.full((9,), 0.3)
        loss = naive_icda(output, data.targets, reference.head.weight, alpha, mean, cov)
        loss.backward()
        result = method.step(data, context_of(model))
        torch.testing.assert_close(result.loss, loss.detach(), rtol=1e-7, atol=0)
        for mine, parameter in zip(model.parameters(), reference.parameters(), strict=True):
            wanted = (parameter - RATE * parameter.grad).detach()
            torch.testing.assert_close(mine.detach(), wanted, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_real_loss_uses_statistics_and_strengths_stepped_along_their_gradients(kind, model):
    """The gradients come from `create_graph=True`, the loss from the loop above."""
    method, context, rate = (
        make(covariance=kind, rank=2, statistics_rate=20.0, strength_rate=0.05),
        context_of(model),
        20,
    )
    twin, data, output = before_a_step(method, model, context)
    tensors, inner = twin.outer(output, data, context)
    gradients = meta_gradients(model, data, METADATA, inner, tensors, RATE)
    count, statistics = len(list(twin.strength_network.parameters())), twin.criterion.statistics
    stepped = [(t - rate * g).detach() for t, g in zip(tensors[count:], gradients[count:], strict=True)]
    mean, cov = stepped[0], covariance_of(kind, stepped[1:])
    assert (mean - statistics.mean).abs().max() > 1e-3, "a correction too small to see proves nothing"
    assert (cov - dense(statistics)).abs().max() > 1e-3
    step_by_adam(twin.strength_network, gradients[:count], rate=0.05)
    described = twin.characteristics(output.logits, output.features, data.targets, model.head.weight)
    alpha = twin.strength_network(described).detach()
    wanted = naive_icda(output, data.targets, model.head.weight, alpha, mean, cov).detach()
    result = method.step(data, context)
    torch.testing.assert_close(result.loss, wanted, rtol=1e-8, atol=0)
    for mine, other in zip(method.strength_network.parameters(), twin.strength_network.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-8)


def covariance_of(kind, parts):
    if kind == "full":
        return (parts[0] + parts[0].mT) / 2
    diagonal = torch.diag_embed(parts[0])
    return diagonal if kind == "diagonal" else diagonal + parts[1].mT @ parts[1]


def step_by_adam(network, gradients, rate):
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=1e-4)
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()


def accumulate(kind, model, method, steps):
    """Train, and beside it fold the very same features into plain statistics."""
    plain = ClassStatistics(CLASSES, DIM, kind, rank=2).double()
    context = context_of(model)
    for k in range(steps):
        with torch.no_grad():
            plain.update(model(make_batch(k).inputs).features, make_batch(k).targets)
        context.iteration = k
        method.step(make_batch(k), context)
    return plain


@pytest.mark.parametrize("kind", KINDS)
def test_by_default_the_running_statistics_are_plain_sums_bit_for_bit(kind, model):
    method = make(covariance=kind, rank=2, statistics_rate=5.0)
    plain = accumulate(kind, model, method, steps=4)
    for name, value in plain.state_dict().items():
        assert torch.equal(method.criterion.statistics.state_dict()[name], value), name


@pytest.mark.parametrize("kind", KINDS)
def test_persisting_writes_corrections_back_and_leaves_the_counts_alone(kind, model):
    method = make(covariance=kind, rank=2, statistics_rate=5.0, persist=True)
    plain = accumulate(kind, model, method, steps=4)
    statistics = method.criterion.statistics
    assert torch.equal(statistics.count, plain.count)
    assert (statistics.mean - plain.mean).abs().max() > 1e-3
    assert (statistics.covariance - plain.covariance).abs().max() > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_persisted_covariances_stay_positive_semidefinite(kind, model, monkeypatch):
    method = make(covariance=kind, rank=2, statistics_rate=200.0, persist=True)
    indefinite = []

    def watched(statistics, moments):
        cov = moments.covariance()
        indefinite.append(bool((torch.linalg.eigvalsh(torch.diag_embed(cov) if cov.dim() == 2 else cov) < -1e-3).any()))
        assign(statistics, moments)
        assert float(torch.linalg.eigvalsh(dense(statistics)).min()) >= -1e-8

    monkeypatch.setattr(meta_icda, "assign", watched)
    run(method, model, 4)
    assert kind == "low_rank" or any(indefinite), "no correction that needed a projection"


def test_persisting_a_small_correction_equals_the_stepped_statistics(model):
    """What is stored is value - rate * gradient, where no projection is needed."""
    method = make(covariance="diagonal", statistics_rate=1e-3, persist=True)
    context = context_of(model)
    twin, data, output = before_a_step(method, model, context)
    tensors, inner = twin.outer(output, data, context)
    gradients = meta_gradients(model, data, METADATA, inner, tensors, RATE)
    mean, variances = ((t - 1e-3 * g).detach() for t, g in zip(tensors[-2:], gradients[-2:], strict=True))
    method.step(data, context)
    torch.testing.assert_close(method.criterion.statistics.mean, mean, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(method.criterion.statistics.covariance, variances.clamp(min=0), rtol=1e-9, atol=1e-12)


def test_without_correction_strengths_are_learned_and_statistics_are_not(model):
    method = make(correct_statistics=False)
    before = copy.deepcopy(method.strength_network.state_dict())
    assert len(method.outer(model(make_batch(0).inputs), make_batch(0), context_of(model)).tensors) == len(
        list(method.strength_network.parameters())
    )
    run(method, model, 1)
    after = method.strength_network.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_before_the_start_it_is_plain_icda(model):
    method, plain_model = make(start=0.8), copy.deepcopy(model)
    plain = create_method("icda", Setup(CLASSES, DIM, COUNTS, epochs=1, num_samples=75)).double().train()
    before = copy.deepcopy(method.strength_network.state_dict())
    for mine, wanted in zip(run(method, model, 3, 0.79), run(plain, plain_model, 3, 0.79), strict=True):
        torch.testing.assert_close(mine.loss, wanted.loss, rtol=1e-12, atol=0)
        assert mine.extra == {}
    for mine, wanted in zip(model.parameters(), plain_model.parameters(), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-10, atol=1e-13)
    for name, value in method.strength_network.state_dict().items():
        assert torch.equal(before[name], value), name
    assert "meta_loss" in run(method, model, 1, 0.8)[0].extra


def test_between_looks_ahead_the_running_statistics_are_used(model):
    method, context = make(every=2, statistics_rate=20.0), context_of(model)
    method.step(make_batch(0), context)
    context.iteration, data, statistics = 1, make_batch(1), copy.deepcopy(method.criterion.statistics)
    output = model(data.inputs)
    statistics.update(output.features, data.targets)
    described = method.characteristics(output.logits, output.features, data.targets, model.head.weight)
    alpha = method.strength_network(described).detach()
    wanted = naive_icda(output, data.targets, model.head.weight, alpha, statistics.mean, dense(statistics)).detach()
    torch.testing.assert_close(method.step(data, context).loss, wanted, rtol=1e-8, atol=0)
