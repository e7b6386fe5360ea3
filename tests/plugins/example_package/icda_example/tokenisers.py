from icda.data.tokens import Tokeniser


def letters() -> Tokeniser:
    """Each ASCII letter is its code; 0 fills up."""
    return Tokeniser(lambda texts, max_length: [[ord(c) for c in text if 0 < ord(c) < 128] for text in texts])
