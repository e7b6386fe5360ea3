import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.data.task import Batch
from icda.losses.head import head_parameters
from icda.methods import Setup
from icda.methods.oltr import OLTR, MetaEmbeddingHead, centroid_loss
from icda.models.base import FeatureClassifier
from support import make_context

SETUP = Setup(num_classes=3, feature_dim=4, class_counts=torch.tensor([12, 8, 4]), epochs=9, num_samples=24, seed=5)
TARGETS = torch.tensor([0] * 12 + [1] * 8 + [2] * 4)
INPUTS = torch.randn(24, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
BATCH = Batch(INPUTS, TARGETS, None, torch.arange(24))


def make(with_memory=True, bias=True, **options):
    method = OLTR(SETUP, **options).double()
    model = method.prepare_network(FeatureClassifier(nn.Identity(), nn.Linear(4, 3, bias)).double())
    if with_memory:
        centroids = torch.randn(3, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        model.head.open_memory(centroids, torch.Generator().manual_seed(3))
    return method, model


def context_of(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    return make_context(model, optimizers=[optimizer], data=(INPUTS, TARGETS))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def oracle(features, head, scale, reach):
    """v = (reach/d)(h + tanh(S h + s) * sum_c p_c m_c), logits scale |v|/(1+|v|) cos(v, w_c)."""
    shift = [0.0] * 3 if head.linear.bias is None else head.linear.bias.tolist()
    centroids, rows = head.centroids.tolist(), []
    for h in features.tolist():
        nearest = min(math.dist(h, m) for m in centroids)
        exps = [math.exp(dot(h, w) + b) for w, b in zip(head.linear.weight.tolist(), shift, strict=True)]
        v = []
        for k in range(4):
            gate = math.tanh(dot(h, head.selector.weight.tolist()[k]) + head.selector.bias.tolist()[k])
            memory = sum(e / sum(exps) * m[k] for e, m in zip(exps, centroids, strict=True))
            v.append(reach / nearest * (h[k] + gate * memory))
        length = math.hypot(*v)
        rows.append(
            [scale * length / (1 + length) * dot(v, w) / (length * math.hypot(*w)) for w in head.directions.tolist()]
        )
    return rows


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("scale", "reach"), [(16.0, 10.0), (4.0, 0.5)])
def test_logits_with_memory_equal_naive_loops(scale, reach, bias):
    method, model = make(bias=bias, scale=scale, reach=reach)
    wanted = torch.tensor(oracle(INPUTS, model.head, scale, reach), dtype=torch.float64)
    torch.testing.assert_close(method.predict([model], INPUTS), wanted, rtol=1e-10, atol=1e-10)


def test_logits_without_memory_are_those_of_the_head_it_replaced_and_nothing_is_drawn():
    plain = nn.Linear(4, 3)
    before = torch.get_rng_state()
    head = MetaEmbeddingHead.of(plain, 16.0, 10.0)
    assert torch.equal(torch.get_rng_state(), before)
    features = torch.randn(5, 4)
    assert torch.equal(head(features), plain(features))


def test_the_weight_that_can_be_read_is_that_of_the_classifier_in_use():
    _, model = make(with_memory=False)
    head = model.head
    assert head_parameters(head) == (head.linear.weight, head.linear.bias)
    head.open_memory(torch.zeros(3, 4), torch.Generator())
    assert head_parameters(head) == (head.directions, None)
    assert (model.num_classes, model.feature_dim) == (3, 4)
    assert "has_memory=True" in repr(head)


def test_the_terms_equal_naive_loops_and_the_margin_ends_the_repulsion():
    centroids = torch.randn(3, 4, dtype=torch.float64)
    for margin in (0.0, 5.0, 10.0, 50.0):
        attract = others = 0.0
        for h, y in zip(INPUTS.tolist(), TARGETS.tolist(), strict=True):
            for c, centroid in enumerate(centroids.tolist()):
                distance = math.dist(h, centroid) ** 2
                attract += distance / 2 / 24 if c == y else 0.0
                others += 0.0 if c == y else distance / (24 * 3)
        wanted = attract + 0.3 * max(0.0, margin - others)
        found = centroid_loss(INPUTS, TARGETS, centroids, 0.3, margin)
        assert float(found) == pytest.approx(wanted, rel=1e-10)


def test_gradients_of_logits_and_terms_are_right():
    _, model = make()
    features = INPUTS[:5].clone().requires_grad_()
    assert torch.autograd.gradcheck(model.head, (features,))

    def terms(features):
        return centroid_loss(features, TARGETS[:5], model.head.centroids, 0.3, 50.0)

    assert torch.autograd.gradcheck(terms, (features,))


def test_a_feature_on_a_centroid_has_finite_logits_and_gradients():
    _, model = make()
    features = model.head.centroids.clone().requires_grad_()
    logits = model.head(features)
    logits.sum().backward()
    assert torch.isfinite(logits).all()
    assert torch.isfinite(features.grad).all()
    assert logits.abs().max() <= 16


def test_the_second_loss_is_cross_entropy_and_the_weighted_terms():
    method, model = make(weight=0.2, repel=0.3, margin=50.0)
    output = model(INPUTS)
    found = method.memory_loss(output, BATCH, context_of(model))
    terms = centroid_loss(INPUTS, TARGETS, model.head.centroids, 0.3, 50.0)
    torch.testing.assert_close(found, F.cross_entropy(output.logits, TARGETS) + 0.2 * terms)
    plain, _ = make(weight=0.0)
    found = plain.memory_loss(output, BATCH, context_of(model))
    assert torch.equal(found, F.cross_entropy(output.logits, TARGETS))


def test_the_first_stage_is_cross_entropy_bit_for_bit():
    method, model = make(with_memory=False)
    plain = FeatureClassifier(nn.Identity(), nn.Linear(4, 3)).double()
    plain.head.load_state_dict(model.head.linear.state_dict())
    ours, theirs = context_of(model), context_of(plain)
    for _ in range(3):
        method.step(BATCH, ours)
        theirs.apply(F.cross_entropy(plain(INPUTS).logits, TARGETS))
    assert torch.equal(model.head.linear.weight, plain.head.weight)
    assert torch.equal(model.head.linear.bias, plain.head.bias)
    assert not model.head.centroids.any()


@pytest.mark.parametrize("stage", ["representation", "memory"])
def test_every_parameter_has_a_gradient_in_both_stages(stage):
    method, model = make(with_memory=stage == "memory")
    (method.memory_loss if stage == "memory" else method.loss)(model(INPUTS), BATCH, context_of(model)).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"several processes would wait for {name}"
        assert bool(parameter.grad.any()) is (stage == "memory" or "linear" in name), name


def test_the_switch_makes_centroids_of_class_means_and_draws_the_rest_from_the_seed():
    method, model = make(with_memory=False)
    model.encoder = nn.Sequential(nn.Identity(), nn.Dropout(0.5))
    kept = model.head.linear.weight.clone()
    model.train()
    model.encoder[0].eval()
    state = torch.get_rng_state()
    method.open_memory(context_of(model))
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model.encoder] == [False, True]
    for c in range(3):
        rows = [row for row, y in zip(INPUTS.tolist(), TARGETS.tolist(), strict=True) if y == c]
        wanted = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        assert model.head.centroids[c].tolist() == pytest.approx(wanted)
    assert torch.equal(model.head.linear.weight, kept)
    assert 0.3 < model.head.directions.abs().max() <= 0.5  # uniform up to 1/sqrt(A)
    again, other = make(with_memory=False)[1], make(with_memory=False)[1]
    method.open_memory(context_of(again))
    assert torch.equal(again.head.directions, model.head.directions)
    assert torch.equal(again.head.selector.weight, model.head.selector.weight)
    reseeded = OLTR(Setup(3, 4, SETUP.class_counts, epochs=9, num_samples=24, seed=6))
    reseeded.open_memory(context_of(other))
    assert not torch.equal(other.head.directions, model.head.directions)


def test_a_step_moves_centroids_towards_the_features_of_their_class():
    method, model = make(centroid_rate=0.4)
    before = model.head.centroids.clone()
    batch = Batch(INPUTS[8:16], TARGETS[8:16], None, torch.arange(8))  # no sample of the last class
    method.memory_step(batch, context_of(model))
    for c in range(3):
        rows = INPUTS[8:16][TARGETS[8:16] == c]
        wanted = before[c] - 0.4 * sum((before[c] - h for h in rows), torch.zeros(4).double()) / (1 + len(rows))
        torch.testing.assert_close(model.head.centroids[c], wanted)
    assert torch.equal(model.head.centroids[2], before[2])
