"""Which tokeniser a model reads texts with, and whether it reads texts at all."""

import threading
from collections.abc import Callable
from dataclasses import replace

from icda.data.sources import TextArray
from icda.data.task import Source, Task
from icda.data.tokens import HASHED_WORDS, Tokeniser
from icda.errors import InputError, InputTypeError
from icda.models.huggingface import huggingface_config, huggingface_kind, load_pretrained_tokeniser
from icda.models.registry import MODELS
from icda.registry import Registry

# A model of icda's own that reads texts has an entry of the same name here; all others read numbers.
TOKENISERS: Registry[Callable[[], Tokeniser]] = Registry("tokeniser", package="icda.models", group="icda.tokenisers")


TOKENISERS.register("bag_of_words")(lambda: HASHED_WORDS)


def read_by(task: Task, model: str, max_length: int | None = None) -> Task:
    """The task as the model `model` reads it: texts get the model's tokeniser, all else stays.

    A model of texts on another task, and any other model on texts, are refused. `max_length` cuts texts to fewer ids
    than the task does, or to more.
    """
    tokeniser = tokeniser_of(model)
    is_text = task.input_kind == "text"
    if tokeniser is not None and not is_text:
        raise InputError(
            f"model {model!r} reads texts, but the samples of task {task.name!r} are of kind {task.input_kind!r}, shape "
            f"{task.input_shape}: choose another model, such as the task's own, {task.default_model!r}."
        )
    if tokeniser is None and is_text:
        raise InputError(
            f"model {model!r} does not read texts, and the samples of task {task.name!r} are texts: choose one of "
            f"{', '.join(TOKENISERS)}, or hf:PATH_OR_ID of a sequence classifier."
        )
    if max_length is not None and not is_text:
        raise InputError(
            f"max_length is {max_length}, but the samples of task {task.name!r} are no texts: leave it out."
        )
    return task if tokeniser is None else with_tokeniser(task, tokeniser, max_length)


def with_tokeniser(task: Task, tokeniser: Tokeniser, max_length: int | None = None) -> Task:
    """The same task, its texts cut into ids by another tokeniser; splits that shared a source go on sharing one.

    Texts are cut to `max_length` ids, to the task's own length if None, and never beyond what the tokeniser's model can
    take. `input_shape` says the length that came out.
    """
    tokenised: dict[int, TextArray] = {}

    def exchanged(source: Source) -> TextArray:
        if not isinstance(source, TextArray):
            raise InputTypeError(
                f"task {task.name!r} keeps its texts in a {type(source).__name__}, expected a TextArray to tokenise."
            )
        if id(source) not in tokenised:
            tokenised[id(source)] = source.with_tokeniser(tokeniser, max_length)
        return tokenised[id(source)]

    splits = {name: replace(split, source=exchanged(split.source)) for name, split in task.splits().items()}
    longest = max(source.max_length for source in tokenised.values())
    return replace(task, input_shape=(longest,), **splits)  # type: ignore[arg-type]


def tokeniser_of(model: str) -> Tokeniser | None:
    """The tokeniser that belongs to a model; None for one that reads images or feature vectors."""
    prefix, colon, target = model.partition(":")
    if not colon:
        name = MODELS.resolve(model)
        return TOKENISERS.get(name)() if name in TOKENISERS else None
    config = huggingface_config(target) if prefix == "hf" else None
    if config is None or huggingface_kind(config) == "image":
        return None
    return load_tokeniser(target, config.vocab_size, getattr(config, "max_position_embeddings", None))


def load_tokeniser(target: str, vocabulary: int, positions: int | None = None) -> Tokeniser:
    """The tokeniser saved beside a Hugging Face model whose embedding has `vocabulary` rows."""
    pretrained = load_pretrained_tokeniser(target)
    if len(pretrained) > vocabulary:
        raise InputError(
            f"the tokeniser of {target} knows {len(pretrained)} tokens, its model only {vocabulary}: they are no pair. "
            "Save the model's own tokeniser beside it."
        )
    # Truncation is a setting inside a fast tokeniser: two threads (a loader's and the trainer's) must take turns.
    lock = threading.Lock()

    def encode(texts: list[str], max_length: int) -> list[list[int]]:
        with lock:
            ids: list[list[int]] = pretrained(texts, truncation=True, max_length=max_length, padding=False)["input_ids"]
        return ids

    limits = [limit for limit in (pretrained.model_max_length, positions) if limit is not None]
    return Tokeniser(encode, int(pretrained.pad_token_id), min(limits, default=None))
