"""What a class can be made with, when its __init__ passes `*sizes` and `**options` on to the next one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter


def full_signature(cls: type, types: bool = False) -> inspect.Signature:
    """The arguments of a class with those of the bases that its `*sizes` and `**options` reach.

    With `types` annotations are what they stand for, and texts where that exists for type checkers only.
    """
    merged: dict[str, Parameter] = {}
    for maker in (vars(base)["__init__"] for base in cls.__mro__[:-1] if "__init__" in vars(base)):
        _, *parameters = _signature(maker, types).parameters.values()
        kinds = {each.kind for each in parameters}
        for each in parameters:
            if each.kind not in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL):
                merged.setdefault(each.name, each)
        if Parameter.VAR_KEYWORD not in kinds:
            break
    return inspect.Signature(sorted(merged.values(), key=lambda each: each.kind))


def _signature(maker: Callable[..., None], types: bool) -> inspect.Signature:
    try:
        return inspect.signature(maker, eval_str=types)
    except NameError:
        return inspect.signature(maker)
