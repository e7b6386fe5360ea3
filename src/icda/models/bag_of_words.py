"""Text classification without a download: hashed words and their mean embedding."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from icda.models.base import FeatureClassifier
from icda.models.registry import MODELS

VOCABULARY_SIZE = 32768
PADDING = 0
FEATURE_DIM = 64

_WORD = re.compile(r"\w+(?:['’]\w+)*")


def hash_tokens(text: str) -> list[int]:
    """Ids in 1..32767 of the lower-case words of a text, followed by those of its pairs of neighbouring words.

    Ids are CRC-32 sums and the same on every machine; 0 is left for padding.

    >>> hash_tokens("The bird") == hash_tokens("the  BIRD!")
    True
    >>> len(hash_tokens("a bird on water")), hash_tokens("")
    (7, [])
    """
    words = _WORD.findall(text.lower())
    pairs = [f"{first} {second}" for first, second in pairwise(words)]
    return [1 + zlib.crc32(token.encode()) % (VOCABULARY_SIZE - 1) for token in words + pairs]


class BagOfWords(nn.Module):
    """The mean embedding of the unpadded tokens, then one hidden ReLU layer.

    Takes a dict with `input_ids` (N, L), integers in [0, 32768), and `attention_mask` (N, L); returns features (N, 64).
    A text without tokens has the zero vector as its mean.

    Reference: A. Joulin et al., "Bag of Tricks for Efficient Text Classification", EACL 2017 (hashing and bigrams).

    >>> import torch
    >>> ids = torch.tensor([hash_tokens("good film"), hash_tokens("bad film")])
    >>> BagOfWords()({"input_ids": ids, "attention_mask": torch.ones_like(ids)}).shape
    torch.Size([2, 64])
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY_SIZE, FEATURE_DIM, padding_idx=PADDING)
        self.hidden = nn.Linear(FEATURE_DIM, FEATURE_DIM)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        if not isinstance(inputs, Mapping) or not {"input_ids", "attention_mask"} <= set(inputs):
            found = f"a dict with {sorted(inputs)}" if isinstance(inputs, Mapping) else type(inputs).__name__
            raise TypeError(f"bag_of_words expects a dict with 'input_ids' and 'attention_mask', got {found}.")
        embedded = self.embedding(inputs["input_ids"])
        mask = inputs["attention_mask"].to(embedded.dtype).unsqueeze(-1)
        mean = (embedded * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        return F.relu(self.hidden(mean))


@MODELS.register("bag_of_words")
def bag_of_words(num_classes: int, input_shape: tuple[int, ...] = ()) -> FeatureClassifier:
    """The bag of words with its head; texts have no fixed shape, so `input_shape` is not used.

    >>> bag_of_words(num_classes=2).feature_dim
    64
    """
    return FeatureClassifier(BagOfWords(), nn.Linear(FEATURE_DIM, num_classes))
