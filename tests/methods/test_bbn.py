import pytest
import torch
from torch import nn

from icda.data import create_task
from icda.data.task import Batch
from icda.methods import Setup, create_method
from icda.methods.bbn import BBN
from icda.models import create_model
from icda.models.base import FeatureClassifier
from icda.models.two_branches import TwoBatches
from support import make_context

CLASSES, SIZE = 3, 6


def make():
    setup = Setup(CLASSES, 5, torch.tensor([6, 3, 1]), epochs=10, num_samples=10, input_shape=(4,))
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh())
    method = BBN(setup)
    network = method.prepare_network(FeatureClassifier(encoder, nn.Linear(5, CLASSES))).double()
    with torch.no_grad():  # branches that have gone their own ways
        for value in network.encoder.rebalancing.parameters():
            value.add_(torch.randn_like(value))
    return method, network


def make_batches():
    inputs = torch.randn(2, SIZE, 4, dtype=torch.float64)
    first, second = torch.tensor([0, 0, 0, 1, 1, 2]), torch.tensor([2, 2, 1, 2, 0, 1])
    return (Batch(inputs[0], first, None, torch.arange(SIZE)), Batch(inputs[1], second, None, torch.arange(SIZE)))


def context_of(network, second, epoch, asked):
    def draw(sampling):
        asked.append(sampling)
        return second

    network.zero_grad()
    step = {"apply": lambda loss: loss.backward(), "draw": draw}
    return make_context(network, epoch=epoch, num_epochs=10, **step)


def naive_loss(network, first, second, share):
    """Loss and mixed accuracy, sample by sample and class by class."""
    encoder, loss, hits = network.encoder, 0.0, 0.0
    for i in range(SIZE):
        one = encoder.conventional(encoder.trunk(first.inputs[[i]]))[0]
        two = encoder.rebalancing(encoder.trunk(second.inputs[[i]]))[0]
        logits = network.head.weight @ torch.cat([2 * share * one, 2 * (1 - share) * two]) + network.head.bias
        for target, part in ((int(first.targets[i]), share), (int(second.targets[i]), 1 - share)):
            loss = loss + part * (logits.exp().sum().log() - logits[target]) / SIZE
            hits += part * (int(logits.argmax()) == target) / SIZE
    return loss, hits


@pytest.mark.parametrize("epoch", [0, 4, 9])
def test_a_step_is_on_the_mixed_loss_of_mixed_features(epoch):
    method, network = make()
    (first, second), asked = make_batches(), []
    result = method.step(first, context_of(network, second, epoch, asked))
    loss, hits = naive_loss(network, first, second, 1 - (epoch / 10) ** 2)
    assert float(result.loss) == pytest.approx(float(loss.detach()), rel=1e-10)
    assert result.extra["mixed_accuracy"] == pytest.approx(hits)
    assert result.logits is None
    assert asked == ["class_reversed"]
    assert method.epoch_figures() == {"uniform_share": pytest.approx(1 - (epoch / 10) ** 2)}
    slopes = torch.autograd.grad(loss, list(network.parameters()))
    for (name, value), slope in zip(network.named_parameters(), slopes, strict=True):
        torch.testing.assert_close(value.grad, slope, msg=name)
        assert value.grad.any() == (epoch > 0 or "rebalancing" not in name), "the first epoch teaches it nothing"


@pytest.mark.parametrize("training", [True, False])
def test_prediction_reads_both_branches_alike_and_the_head_reads_the_features(training):
    method, network = make()
    network.train(training)
    inputs = make_batches()[0].inputs
    output = network(inputs)
    assert output.features.shape == (SIZE, 10)
    assert network.feature_dim == 10
    assert torch.equal(network.head(output.features), output.logits)
    assert torch.equal(method.predict([network], inputs), output.logits)
    assert torch.equal(network(TwoBatches(inputs, inputs, 0.5)).logits, output.logits)


def test_a_head_without_bias_stays_without_and_two_branches_of_ones_own_are_kept():
    setup = Setup(CLASSES, 5, torch.ones(CLASSES), epochs=1, num_samples=3, input_shape=(4,))
    network = FeatureClassifier(nn.Sequential(nn.Linear(4, 5)), nn.Linear(5, CLASSES, bias=False))
    made = BBN(setup).prepare_network(network)
    assert made.head.bias is None
    encoder, head = made.encoder, made.head
    again = BBN(setup).prepare_network(made)
    assert (again.encoder, again.head) == (encoder, head)


def test_a_model_without_a_block_is_refused_before_training(tmp_path):
    from icda.training import TrainConfig  # here: each rank of the last test would import it
    from icda.training.run import build

    config = TrainConfig(task="digits", method="bbn", model="linear", out=str(tmp_path / "run"))
    with pytest.raises(ValueError, match="no block to make two branches of"):
        build(config, create_task("digits"))
    assert not (tmp_path / "run").exists()


def test_every_explanation_can_be_made_of_its_network():
    from icda.explain.run import PARTS, explain_run

    task = create_task("digits")
    network = create_model("small_cnn", task.num_classes, task.input_shape)
    method = create_method("bbn", Setup.of(task, network, epochs=1))
    network = method.prepare_network(network)
    found = explain_run(task, [network], method, parts=PARTS, top=2, gradcam=2, counterfactuals=1)
    assert set(PARTS) <= set(found)
