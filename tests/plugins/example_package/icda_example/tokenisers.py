from icda.data.tokens import Tokeniser


def encode(texts, max_length):
    return [[ord(c) for c in text if 0 < ord(c) < 128] for text in texts]


def letters() -> Tokeniser:
    """Each ASCII letter is its code; 0 is the padding."""
    return Tokeniser(encode)
