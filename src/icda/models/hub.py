"""Whether models may be fetched from a hub: yes for a name that the user typed, no for one that a stranger's file holds."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from icda.errors import InputError, UnreadableError
from icda.registry import UnknownNameError, did_you_mean

_allowed: ContextVar[bool] = ContextVar("hub_allowed", default=True)

HOW = "What is named in a file is not fetched from a hub: if you trust the file, add --allow-hub (allow_hub=True)."


@contextmanager
def hub(allowed: bool) -> Iterator[None]:
    """Inside, models are read from this machine alone unless `allowed`."""
    token = _allowed.set(allowed)
    try:
        yield
    finally:
        _allowed.reset(token)


def check_prefix(kind: str, prefix: str, target: str, known: Sequence[str]) -> None:
    """Refuse PREFIX:TARGET of another library than we know, or without a model after the colon."""
    if prefix not in known:
        hint = did_you_mean(prefix, known, lambda name: f"{name}:{target}")
        raise UnknownNameError(f"unknown {kind} '{prefix}:{target}': {hint}Known prefixes: {', '.join(known)}.")
    if not target:
        raise InputError(f"'{prefix}:' needs a model after the colon, for example 'hf:distilbert-base-uncased'.")


def hub_allowed() -> bool:
    return _allowed.get()


def local_place(target: str) -> str:
    """Where to read a Hugging Face model: the name itself or, where the hub is not allowed, its folder on this machine.

    Not by `local_files_only`: the hub's library asks its home for other things even then.
    """
    if hub_allowed() or Path(target).is_dir():
        return target
    from huggingface_hub import try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(target, "config.json")
    except ValueError:  # no name that the hub could have
        cached = None
    if isinstance(cached, str):
        return str(Path(cached).parent)
    raise UnreadableError(f"the model {target} is not on this machine. {HOW}")


def check_fetching(name: str) -> None:
    """Refuse a model that a library would look for by itself: only it knows whether its files are on this machine."""
    if not hub_allowed():
        raise InputError(f"the model {name!r} comes from a hub. {HOW}")
