"""cRT, LWS and the two stages of RISDA: what learns when, and from what."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.data import create_task
from icda.data.task import Batch
from icda.losses import LogitAdjustmentLoss, RISDALoss
from icda.losses.head import head_parameters
from icda.methods import Setup, Stage, create_method
from icda.methods.lws import LearnableWeightScaling, ScaledLinear
from icda.methods.risda_two_stage import TwoStageRISDA
from icda.models.base import FeatureClassifier
from icda.training import TrainConfig, Trainer
from icda.training.run import build, make_accelerator
from support import make_context, make_network


@pytest.mark.parametrize("name", ["afr", "crt", "dfr", "jtt", "lws", "oltr"])
def test_a_single_epoch_is_refused_before_training(name, tmp_path):
    config, task = TrainConfig(task="digits", model="mlp", method=name, epochs=1), create_task("digits_coloured")
    networks, method = build(config, task)
    with pytest.raises(ValueError, match=f"{name} trains in two stages and needs 2 epochs or more, got 1"):
        Trainer(config, task, networks, method, tmp_path / "run", make_accelerator("no"))
    assert not (tmp_path / "run").exists()


SETUP = Setup(num_classes=3, feature_dim=5, class_counts=torch.tensor([12, 8, 4]), epochs=10, num_samples=24)
TARGETS = torch.tensor([0] * 12 + [1] * 8 + [2] * 4)
PUT_BACK = {"scales": ("unscaled_weight", "unscaled_bias"), "representation": ("scale",)}


def make(bias=True):
    model = FeatureClassifier(nn.Identity(), nn.Linear(5, 3, bias)).double()
    method = LearnableWeightScaling(SETUP)
    return method, method.prepare_network(model)


def batch_of():
    inputs = torch.randn(24, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Batch(inputs, TARGETS, None, torch.arange(24))


def context_of(model, stage, **options):
    optimizer = torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1} | options)
    return make_context(model, optimizers=[optimizer], stage=stage)


def test_the_head_gives_the_logits_of_the_head_it_replaced_and_draws_nothing():
    for bias in (True, False):
        plain, features = nn.Linear(5, 3, bias), torch.randn(4, 5)
        before = torch.get_rng_state()
        head = ScaledLinear.of(plain)
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(head(features), plain(features))
        assert (head.bias is None) is not bias


@pytest.mark.parametrize("bias", [True, False])
def test_it_reads_as_the_linear_layer_with_scaled_rows(bias):
    method, model = make(bias)
    head = model.head
    with torch.no_grad():
        head.scale.copy_(torch.tensor([2.0, 0.5, -1.0]))
    batch = batch_of()
    weight, found_bias = head_parameters(head)
    raw, shift = head.unscaled_weight.tolist(), head.unscaled_bias.tolist() if bias else [0.0] * 3
    read, predicted = (
        F.linear(batch.inputs, weight, found_bias).tolist(),
        method.predict([model], batch.inputs).tolist(),
    )
    for i, features in enumerate(batch.inputs.tolist()):
        for c, factor in enumerate((2.0, 0.5, -1.0)):
            wanted = factor * (sum(a * b for a, b in zip(features, raw[c], strict=True)) + shift[c])
            assert predicted[i][c] == pytest.approx(wanted, abs=1e-12)
            assert read[i][c] == pytest.approx(wanted, abs=1e-12)
    loss = LogitAdjustmentLoss(3, 5, SETUP.class_counts)
    torch.testing.assert_close(loss(batch.inputs, TARGETS, head), loss(batch.inputs, TARGETS, (weight, found_bias)))
    assert (model.num_classes, model.feature_dim) == (3, 5)


@pytest.mark.parametrize("bias", [True, False])
def test_in_the_second_stage_only_scales_learn_by_their_own_gradient(bias):
    method, model = make(bias)
    batch, head = batch_of(), model.head
    context, before = (
        context_of(model, method.stages(10)[1]),
        {name: v.clone() for name, v in head.state_dict().items()},
    )
    scale, velocity = torch.ones(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    plain = F.linear(batch.inputs, before["unscaled_weight"], before.get("unscaled_bias"))
    for _ in range(3):
        gradient = torch.zeros(3, dtype=torch.float64)
        for z, target in zip(plain, TARGETS.tolist(), strict=True):
            p = (scale * z).exp() / (scale * z).exp().sum()
            for c in range(3):
                gradient[c] += (p[c] - float(c == target)) * z[c] / 24
        gradient = gradient + 0.1 * scale  # weight decay, as for any other parameter
        velocity = 0.9 * velocity + gradient
        scale = scale - 0.1 * velocity
        context.stage.step(batch, context)
        torch.testing.assert_close(head.scale.detach(), scale)
    for name in PUT_BACK["scales"][: 1 + bias]:
        assert torch.equal(head.state_dict()[name], before[name]), name


def test_the_first_stage_is_cross_entropy_bit_for_bit():
    method, model = make()
    plain = FeatureClassifier(nn.Identity(), nn.Linear(5, 3)).double()
    plain.head.load_state_dict({"weight": model.head.unscaled_weight, "bias": model.head.unscaled_bias})
    batch, ours, theirs = batch_of(), context_of(model, method.stages(10)[0]), context_of(plain, Stage(1))
    for _ in range(4):
        ours.stage.step(batch, ours)
        theirs.apply(F.cross_entropy(plain(batch.inputs).logits, TARGETS))
    assert torch.equal(model.head.unscaled_weight, plain.head.weight)
    assert torch.equal(model.head.unscaled_bias, plain.head.bias)
    assert torch.equal(model.head.scale, torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("stage", PUT_BACK)
def test_what_is_put_back_has_a_gradient_and_it_is_zero(stage):
    method, model = make()
    batch = batch_of()
    loss = {each.name: each.loss for each in method.stages(10)}[stage]
    loss(model(batch.inputs), batch, context_of(model, Stage(1))).backward()
    for name, parameter in model.head.named_parameters():
        assert parameter.grad is not None, "several processes would wait for it"
        assert bool(parameter.grad.any()) is (name not in PUT_BACK[stage]), name


INPUTS = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
risda_context = partial(make_context, data=(INPUTS, TARGETS), iteration=9, progress=0.9)


@pytest.fixture
def model():
    return make_network()


@pytest.mark.parametrize(
    ("epochs", "share", "lengths"),
    [(10, 0.8, [8, 2]), (200, 0.8, [160, 40]), (4, 0.5, [2, 2]), (2, 0.8, [2]), (1, 0.1, [1]), (5, 0.01, [1, 4])],
)
def test_the_first_stage_takes_its_share_and_the_head_the_rest(epochs, share, lengths):
    stages = create_method("risda_two_stage", SETUP, {"first_stage": share}).stages(epochs)
    assert [stage.epochs for stage in stages] == lengths
    assert [(stage.on_start is None, stage.loss is None) for stage in stages] == [(True,) * 2, (False,) * 2][
        : len(lengths)
    ]


def test_the_switch_takes_confusion_and_statistics_of_the_whole_training_set_once(model):
    method = TwoStageRISDA(SETUP)
    method.criterion.statistics.update(torch.randn(6, 5), torch.arange(6) % 3)  # of features that are gone
    before = {name: value.clone() for name, value in model.state_dict().items()}
    method.look(risda_context(model))
    model.eval()
    with torch.no_grad():
        output = model(INPUTS)
    confusion = torch.zeros(3, 3, dtype=torch.float64)
    for target, answer in zip(TARGETS.tolist(), output.logits.argmax(1).tolist(), strict=True):
        confusion[target, answer] += 1
    assert torch.equal(method.criterion.confusion, confusion)
    statistics = method.criterion.statistics
    assert statistics.count.tolist() == [12, 8, 4]
    for number in range(3):
        mine = output.features[number == TARGETS]
        torch.testing.assert_close(statistics.mean[number], mine.mean(0))
        torch.testing.assert_close(statistics.covariance[number], torch.cov(mine.T, correction=0), atol=1e-6, rtol=1e-5)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_first_stage_is_plain_cross_entropy_and_the_second_the_reasoning_loss(model):
    method, batch = TwoStageRISDA(SETUP, mean_strength=0.7), Batch(INPUTS, TARGETS, None, torch.arange(24))
    model.eval()
    output = model(INPUTS)
    first = method.loss(output, batch, risda_context(model))
    assert torch.equal(first, F.cross_entropy(output.logits, TARGETS))
    method.look(risda_context(model))
    model.eval()
    oracle = RISDALoss(3, 5, SETUP.class_counts, mean_strength=0.7, reduction="none")
    oracle.load_state_dict(method.criterion.state_dict())
    losses = oracle(output.features, TARGETS, model.head, 0.9)
    raw = [(1 - 0.9999) / (1 - 0.9999**n) for n in (12, 8, 4)]
    weights = torch.tensor([raw[target] for target in TARGETS.tolist()])
    expected = (weights * losses).sum() / weights.sum()
    torch.testing.assert_close(method.head_loss(output, batch, risda_context(model)), expected)
    unweighted = TwoStageRISDA(SETUP, mean_strength=0.7, effective_beta=0.0)
    unweighted.load_state_dict({**method.state_dict(), "class_weights": unweighted.class_weights})
    torch.testing.assert_close(unweighted.head_loss(output, batch, risda_context(model)), losses.mean())
    assert not torch.allclose(expected, first)
