"""What a class can be made with, when its __init__ passes `**options` on to the next one."""

from __future__ import annotations

import inspect
from inspect import Parameter


def full_signature(cls: type) -> inspect.Signature:
    """The arguments of a class with the keyword arguments of the bases that its `**options` reach."""
    makers = [vars(base)["__init__"] for base in cls.__mro__[:-1] if "__init__" in vars(base)]
    _, *own = inspect.signature(makers[0]).parameters.values()
    merged = {each.name: each for each in own if each.kind is not Parameter.VAR_KEYWORD}
    passed_on = [each for each in own if each.kind is Parameter.VAR_KEYWORD]
    for maker in makers[1:] if passed_on else ():
        parameters = inspect.signature(maker).parameters.values()
        passed_on = [each for each in parameters if each.kind is Parameter.VAR_KEYWORD]
        for each in parameters:
            if each.kind is Parameter.KEYWORD_ONLY:
                merged.setdefault(each.name, each)
        if not passed_on:
            break
    return inspect.Signature(list(merged.values()))
