from dataclasses import replace

import pytest
import torch

from icda.data.sources import FeatureArray, TextArray
from icda.data.task import Split, Task
from icda.data.tokens import HASHED_WORDS, Tokeniser, hash_tokens
from icda.models.tokenisers import with_tokeniser

TEXTS = ["not a good film", "good", "a bad film", "bad"]


def closed(texts: list[str], max_length: int) -> list[list[int]]:
    """One id a word, and 9 at the end of each text whatever its length."""
    return [[*(len(word) for word in text.split()[: max_length - 1]), 9] for text in texts]


def make_task() -> Task:
    source = TextArray(TEXTS, lambda texts: [[1]] * len(texts), 8)
    train = Split(source, torch.tensor([0, 2]), torch.tensor([1, 0]), groups=torch.tensor([0, 1]))
    other = TextArray(["odd one"], lambda texts: [[1]] * len(texts), 6)
    validation = Split(other, torch.tensor([0]), torch.tensor([1]), groups=torch.tensor([1]))
    test = Split(source, torch.tensor([1, 3]), torch.tensor([1, 0]), groups=torch.tensor([0, 0]))
    return Task("films", 2, train, validation, test, group_names=("a", "b"), input_kind="text", input_shape=(8,))


def test_every_split_is_cut_by_the_new_tokeniser_and_nothing_else_changes() -> None:
    task = make_task()
    changed = with_tokeniser(task, Tokeniser(closed, padding=7))
    inputs = changed.train.batch(torch.arange(2)).inputs
    assert inputs["input_ids"].tolist() == [[3, 1, 4, 4, 9], [1, 3, 4, 9, 7]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]
    assert changed.validation.batch(torch.tensor([0])).inputs["input_ids"].tolist() == [[3, 3, 9]]
    for name, split in changed.splits().items():
        before = task.splits()[name]
        for values in ("rows", "targets", "groups"):
            assert torch.equal(getattr(split, values), getattr(before, values))
    assert (changed.name, changed.group_names, changed.input_shape) == ("films", ("a", "b"), (8,))
    assert task.train.batch(torch.arange(2)).inputs["input_ids"].tolist() == [[1], [1]]


def test_splits_that_shared_a_source_still_do() -> None:
    changed = with_tokeniser(make_task(), HASHED_WORDS)
    assert changed.train.source is changed.test.source
    assert changed.train.source is not changed.validation.source


def test_the_length_is_the_smallest_of_what_is_asked_for_and_what_the_model_can_take() -> None:
    task = make_task()
    assert with_tokeniser(task, Tokeniser(closed), max_length=3).input_shape == (3,)
    assert with_tokeniser(task, Tokeniser(closed), max_length=50).input_shape == (50,)
    short = with_tokeniser(task, Tokeniser(closed, max_length=2), max_length=50)
    assert short.input_shape == (2,)
    # The tokeniser is told the length: its closing id is not what is cut off.
    assert short.train.batch(torch.arange(2)).inputs["input_ids"].tolist() == [[3, 9], [1, 9]]


def test_the_hash_of_the_data_tells_tokenisers_apart() -> None:
    task = make_task()
    hashes = {
        with_tokeniser(task, tokeniser).data_hash
        for tokeniser in (
            HASHED_WORDS,
            Tokeniser(closed),
            Tokeniser(closed, padding=1),
            Tokeniser(closed, max_length=3),
        )
    }
    assert len(hashes) == 4


def test_hashed_words_exchanged_for_themselves_leave_hash_and_ids() -> None:
    source = TextArray(TEXTS, lambda texts: [hash_tokens(text) for text in texts], 5)
    split = Split(source, torch.arange(4), torch.tensor([1, 1, 0, 0]))
    task = Task("films", 2, split, None, split, input_kind="text", input_shape=(5,))
    assert with_tokeniser(task, HASHED_WORDS).data_hash == task.data_hash


def test_texts_that_are_numbers_already_are_refused() -> None:
    task = make_task()
    features = replace(task.train, source=FeatureArray(torch.zeros(4, 2)))
    with pytest.raises(TypeError, match="keeps its texts in a FeatureArray, expected a TextArray"):
        with_tokeniser(replace(task, train=features), HASHED_WORDS)
