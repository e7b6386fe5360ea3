import zlib

from icda.data.tokens import HASHED_WORDS, hash_tokenise, hash_tokens


def test_words_come_first_and_then_pairs_of_neighbours() -> None:
    tokens = ["it's", "a", "bird", "it's a", "a bird"]
    assert hash_tokens("It's a BIRD.") == [1 + zlib.crc32(token.encode()) % 32767 for token in tokens]


def test_ids_leave_zero_to_the_padding_and_are_the_same_on_every_machine() -> None:
    ids = hash_tokens(" ".join(str(number) for number in range(50_000)))
    assert (min(ids), max(ids)) == (1, 32767)
    assert hash_tokens("bird on water") == [28552, 15669, 2885, 17829, 22517]
    assert hash_tokenise(["", " ?!", "ja"]) == [[], [], hash_tokens("ja")]


def test_hashed_words_are_a_tokeniser_without_an_end() -> None:
    assert HASHED_WORDS.encode(["not a good film", "ja"], 3) == hash_tokenise(["not a good film", "ja"])
    assert (HASHED_WORDS.padding, HASHED_WORDS.max_length) == (0, None)
