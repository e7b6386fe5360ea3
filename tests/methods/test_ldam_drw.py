from types import SimpleNamespace

import pytest
import torch
from torch import nn

from icda.data.task import Batch
from icda.losses.cosine import CosineHead
from icda.losses.ldam import LDAMLoss
from icda.methods import Setup, create_method
from icda.methods.ldam_drw import LDAMDRW
from icda.models.base import FeatureClassifier, Output

COUNTS = torch.tensor([500, 40, 3])
SETUP = Setup(num_classes=3, feature_dim=5, class_counts=COUNTS, epochs=200, num_samples=543)


def make_batch():
    generator = torch.Generator().manual_seed(0)
    head = CosineHead(5, 3).double()
    with torch.no_grad():
        head.weight.copy_(torch.randn(3, 5, generator=generator))
    features = torch.randn(9, 5, generator=generator, dtype=torch.float64)
    return (
        Output(features, head(features)),
        Batch(None, torch.tensor([0] * 5 + [1] * 3 + [2]), None, torch.arange(9)),
        head,
    )


def at(progress, head):
    return SimpleNamespace(progress=progress, head=head)


@pytest.mark.parametrize("progress", [0.0, 0.5, 159 / 200])
def test_until_the_start_it_is_ldam(progress):
    output, batch, head = make_batch()
    value = LDAMDRW(SETUP).loss(output, batch, at(progress, head))
    expected = LDAMLoss(3, 5, COUNTS)(output.features, batch.targets, head)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("progress", [160 / 200, 0.9, 1.0])
def test_from_the_start_on_classes_are_weighted_by_effective_numbers(progress):
    output, batch, head = make_batch()
    value = LDAMDRW(SETUP, effective_beta=0.99, max_margin=0.3).loss(output, batch, at(progress, head))
    losses = LDAMLoss(3, 5, COUNTS, max_margin=0.3, reduction="none")(output.features, batch.targets, head).tolist()
    weights = [0.01 / (1 - 0.99 ** int(COUNTS[y])) for y in batch.targets.tolist()]
    expected = sum(w * loss for w, loss in zip(weights, losses, strict=True)) / sum(weights)
    assert value.item() == pytest.approx(expected, rel=1e-10)


def test_beta_zero_is_ldam_to_the_end():
    output, batch, head = make_batch()
    value = LDAMDRW(SETUP, effective_beta=0.0, start=0.0).loss(output, batch, at(1.0, head))
    expected = LDAMLoss(3, 5, COUNTS)(output.features, batch.targets, head)
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-13)


def test_the_network_gets_a_cosine_head_and_predicts_with_it():
    method = create_method("ldam_drw", SETUP, {"scale": 20.0})
    plain = FeatureClassifier(nn.Linear(4, 5), nn.Linear(5, 3))
    inputs, weight = torch.randn(6, 4), plain.head.weight.clone()
    model = method.prepare_network(plain)
    assert isinstance(model.head, CosineHead)
    features = model.encoder(inputs)
    expected = 20 * torch.nn.functional.cosine_similarity(features[:, None], weight[None], dim=2)
    torch.testing.assert_close(method.predict([model], inputs), expected)
