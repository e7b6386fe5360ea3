import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.data import create_task
from icda.data.task import Batch
from icda.methods import Method, Setup, Stage
from icda.models import FeatureClassifier, create_model
from support import make_context


def toy_batch():
    return Batch(torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]), None, torch.arange(6))


@pytest.fixture
def model():
    return FeatureClassifier(nn.Linear(4, 5), nn.Linear(5, 3))


def test_the_default_step_is_one_step_of_plain_descent(model):
    batch = toy_batch()
    loss = F.cross_entropy(model(batch.inputs).logits, batch.targets)
    logits = model(batch.inputs).logits.detach()
    gradient = torch.autograd.grad(loss, model.head.weight)[0]
    expected = model.head.weight.detach() - 0.5 * gradient
    result = Method().step(batch, make_context(model, rate=0.5))
    torch.testing.assert_close(model.head.weight.detach(), expected)
    torch.testing.assert_close(result.loss, loss.detach())
    torch.testing.assert_close(result.logits, logits)
    assert not result.loss.requires_grad
    assert not result.logits.requires_grad
    assert result.extra == {}


def test_a_method_is_one_stage_and_leaves_the_network_alone_unless_it_says_otherwise(model):
    method, context = Method(), make_context(model, rate=0.5)
    assert method.stages(7) == [Stage(7)]
    assert method.prepare_network(model) is model
    assert method.epoch_figures() == {}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for hook in (method.on_stage_start, method.on_epoch_start, method.on_epoch_end):
        assert hook(context) is None
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_setup_tells_counts_of_classes_and_groups():
    task = create_task("digits_coloured")
    setup = Setup.of(task, create_model("mlp", 2, task.input_shape), epochs=3)
    assert (setup.num_classes, setup.feature_dim, setup.epochs, setup.num_samples) == (2, 128, 3, len(task.train))
    assert torch.equal(setup.class_counts, torch.bincount(task.train.targets))
    assert setup.group_counts.tolist() == [int((task.train.groups == group).sum()) for group in range(4)]
    assert setup.batch_size is None
    other, model = create_task("digits_lt"), create_model("mlp", 10, (1, 8, 8))
    assert Setup.of(other, model, 3).group_counts is None
    assert Setup.of(other, model, 3, batch_size=64).batch_size == 64
    assert Setup.of(other, model, 3, batch_size=10**6).batch_size == len(other.train), "a full batch"
