"""Models without a download that train in seconds: mlp and linear for numbers, bag_of_words for texts."""

import math
from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from icda.data.tokens import PADDING, VOCABULARY
from icda.errors import InputError
from icda.models.base import FeatureClassifier, mean_of_tokens
from icda.models.registry import MODELS

WORD_FEATURES = 64


@MODELS.register("mlp")
def mlp(num_classes: int, input_shape: tuple[int, ...], *, hidden: int = 128) -> FeatureClassifier:
    """One hidden ReLU layer over the flattened input, without BatchNorm, so that no sample sees another."""
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(_input_size("mlp", input_shape), hidden), nn.ReLU())
    return FeatureClassifier(encoder, nn.Linear(hidden, num_classes))


@MODELS.register("linear")
def linear(num_classes: int, input_shape: tuple[int, ...]) -> FeatureClassifier:
    """The head alone: the features are the inputs, flattened where they have more than one axis."""
    return FeatureClassifier(nn.Flatten(), nn.Linear(_input_size("linear", input_shape), num_classes))


def _input_size(model: str, input_shape: tuple[int, ...]) -> int:
    if not input_shape:
        raise InputError(f"{model} needs the shape of one input, for example input_shape=(64,) or (1, 28, 28).")
    return math.prod(input_shape)


class BagOfWords(nn.Module):
    """The mean embedding of the unpadded tokens, ids in [0, 32768), then one hidden ReLU layer: features (N, 64).

    Reference: A. Joulin et al., "Bag of Tricks for Efficient Text Classification", EACL 2017 (hashing and bigrams).
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WORD_FEATURES, padding_idx=PADDING)
        self.hidden = nn.Linear(WORD_FEATURES, WORD_FEATURES)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return F.relu(self.hidden(mean_of_tokens("bag_of_words", inputs, lambda ids, mask: self.embedding(ids))))


@MODELS.register("bag_of_words")
def bag_of_words(num_classes: int, input_shape: tuple[int, ...] = ()) -> FeatureClassifier:
    """The bag of words with its head; texts have no fixed shape, so `input_shape` is not used."""
    return FeatureClassifier(BagOfWords(), nn.Linear(WORD_FEATURES, num_classes))
