"""Exchanging the tokeniser of a task's texts."""

from __future__ import annotations

from dataclasses import replace

from icda.data.sources import TextArray
from icda.data.task import Source, Task
from icda.data.tokens import Tokeniser
from icda.errors import InputTypeError


def with_tokeniser(task: Task, tokeniser: Tokeniser, max_length: int | None = None) -> Task:
    """The same task, its texts cut into ids by another tokeniser; splits that shared a source go on sharing one.

    Texts are cut to `max_length` ids, to the task's own length if None, and never beyond what the tokeniser's model can
    take. `input_shape` says the length that came out.

    >>> import torch
    >>> from icda.data.task import Split
    >>> from icda.data.tokens import HASHED_WORDS
    >>> source = TextArray(["good film", "bad film"], lambda texts: [[1]] * len(texts), 8)
    >>> split = Split(source, torch.arange(2), torch.tensor([1, 0]))
    >>> task = with_tokeniser(Task("films", 2, split, None, split, input_kind="text"), HASHED_WORDS, max_length=2)
    >>> task.train.source is task.test.source, task.train.batch(torch.tensor([0])).inputs["input_ids"], task.input_shape
    (True, tensor([[10141, 17070]]), (2,))
    """
    tokenised: dict[int, TextArray] = {}

    def exchanged(source: Source) -> TextArray:
        if not isinstance(source, TextArray):
            raise InputTypeError(
                f"task {task.name!r} keeps its texts in a {type(source).__name__}, expected a TextArray: only there are "
                "the texts themselves at hand to be tokenised for a model."
            )
        if id(source) not in tokenised:
            tokenised[id(source)] = source.with_tokeniser(tokeniser, max_length)
        return tokenised[id(source)]

    splits = {name: replace(split, source=exchanged(split.source)) for name, split in task.splits().items()}
    longest = max(source.max_length for source in tokenised.values())
    return replace(task, input_shape=(longest,), **splits)  # type: ignore[arg-type]
