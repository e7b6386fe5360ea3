"""Text classification without a download: hashed words and their mean embedding."""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from icda.data.tokens import PADDING, VOCABULARY
from icda.models.base import FeatureClassifier, mean_of_tokens
from icda.models.registry import MODELS

FEATURE_DIM = 64


class BagOfWords(nn.Module):
    """The mean embedding of the unpadded tokens, then one hidden ReLU layer.

    Takes a dict with `input_ids` (N, L), integers in [0, 32768), and `attention_mask` (N, L); returns features (N, 64).
    A text without tokens has the zero vector as its mean.

    Reference: A. Joulin et al., "Bag of Tricks for Efficient Text Classification", EACL 2017 (hashing and bigrams).

    >>> import torch
    >>> from icda.data.tokens import hash_tokens
    >>> ids = torch.tensor([hash_tokens("good film"), hash_tokens("bad film")])
    >>> BagOfWords()({"input_ids": ids, "attention_mask": torch.ones_like(ids)}).shape
    torch.Size([2, 64])
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, FEATURE_DIM, padding_idx=PADDING)
        self.hidden = nn.Linear(FEATURE_DIM, FEATURE_DIM)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return F.relu(self.hidden(mean_of_tokens("bag_of_words", inputs, lambda ids, mask: self.embedding(ids))))


@MODELS.register("bag_of_words")
def bag_of_words(num_classes: int, input_shape: tuple[int, ...] = ()) -> FeatureClassifier:
    """The bag of words with its head; texts have no fixed shape, so `input_shape` is not used.

    >>> bag_of_words(num_classes=2).feature_dim
    64
    """
    return FeatureClassifier(BagOfWords(), nn.Linear(FEATURE_DIM, num_classes))
