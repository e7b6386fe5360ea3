"""How texts become numbers: the face of every tokeniser, and one that needs no vocabulary."""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

VOCABULARY = 32768
PADDING = 0  # an id no token gets
_WORD = re.compile(r"\w+(?:['’]\w+)*")


def hash_tokens(text: str) -> list[int]:
    """The ids, 1..32767, of a text's lower-case words, followed by those of its pairs of neighbouring words.

    CRC-32 instead of Python's `hash`, which differs from process to process.
    """
    words = _WORD.findall(text.lower())
    tokens = [*words, *(f"{first} {second}" for first, second in pairwise(words))]
    return [1 + zlib.crc32(token.encode()) % (VOCABULARY - 1) for token in tokens]


def hash_tokenise(texts: list[str]) -> list[list[int]]:
    """`hash_tokens` for a list of texts."""
    return [hash_tokens(text) for text in texts]


@dataclass(frozen=True)
class Tokeniser:
    """How a model reads texts.

    `encode(texts, max_length)` gives the ids of each text; ids beyond `max_length` are cut off by the source. `padding`
    fills the shorter texts of a batch; `max_length` is how many ids the model can take, None where there is no end.
    """

    encode: Callable[[list[str], int], list[list[int]]]
    padding: int = PADDING
    max_length: int | None = None


HASHED_WORDS = Tokeniser(lambda texts, max_length: hash_tokenise(texts))
