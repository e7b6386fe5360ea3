from functools import partial

import pytest
import torch
from torch.nn import functional as F

from icda.data.task import Batch
from icda.losses import RISDALoss
from icda.methods import Setup, create_method
from icda.methods.risda_two_stage import TwoStageRISDA
from icda.models.base import FeatureClassifier
from support import make_context, make_network

SETUP = Setup(num_classes=3, feature_dim=5, class_counts=torch.tensor([12, 8, 4]), epochs=10, num_samples=24)
INPUTS = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
TARGETS = torch.tensor([0] * 12 + [1] * 8 + [2] * 4)
context_of = partial(make_context, data=(INPUTS, TARGETS), iteration=9, progress=0.9)


@pytest.fixture
def model() -> FeatureClassifier:
    return make_network()


@pytest.mark.parametrize(
    ("epochs", "share", "lengths"),
    [(10, 0.8, [8, 2]), (200, 0.8, [160, 40]), (4, 0.5, [2, 2]), (2, 0.8, [2]), (1, 0.1, [1]), (5, 0.01, [1, 4])],
)
def test_the_first_stage_takes_its_share_and_the_head_the_rest(epochs: int, share: float, lengths: list[int]) -> None:
    stages = create_method("risda_two_stage", SETUP, {"first_stage": share}).stages(epochs)
    assert [stage.epochs for stage in stages] == lengths
    assert [(stage.on_start is None, stage.loss is None) for stage in stages] == [(True,) * 2, (False,) * 2][
        : len(lengths)
    ]


def test_the_switch_takes_confusion_and_statistics_of_the_whole_training_set_once(model: FeatureClassifier) -> None:
    method = TwoStageRISDA(SETUP)
    method.criterion.statistics.update(torch.randn(6, 5), torch.arange(6) % 3)  # of features that are gone
    before = {name: value.clone() for name, value in model.state_dict().items()}
    method.look(context_of(model))
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


def test_the_first_stage_is_plain_cross_entropy_and_the_second_the_reasoning_loss(model: FeatureClassifier) -> None:
    method, batch = TwoStageRISDA(SETUP, mean_strength=0.7), Batch(INPUTS, TARGETS, None, torch.arange(24))
    model.eval()
    output = model(INPUTS)
    first = method.loss(output, batch, context_of(model))
    assert torch.equal(first, F.cross_entropy(output.logits, TARGETS))
    method.look(context_of(model))
    model.eval()
    oracle = RISDALoss(3, 5, SETUP.class_counts, mean_strength=0.7, reduction="none")
    oracle.load_state_dict(method.criterion.state_dict())
    losses = oracle(output.features, TARGETS, model.head, 0.9)
    raw = [(1 - 0.9999) / (1 - 0.9999**n) for n in (12, 8, 4)]
    weights = torch.tensor([raw[target] for target in TARGETS.tolist()])
    expected = (weights * losses).sum() / weights.sum()
    torch.testing.assert_close(method.head_loss(output, batch, context_of(model)), expected)
    unweighted = TwoStageRISDA(SETUP, mean_strength=0.7, effective_beta=0.0)
    unweighted.load_state_dict({**method.state_dict(), "class_weights": unweighted.class_weights})
    torch.testing.assert_close(unweighted.head_loss(output, batch, context_of(model)), losses.mean())
    assert not torch.allclose(expected, first)
