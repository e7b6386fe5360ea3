"""What a class can be made with, when its __init__ passes `**options` on to the next one."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from inspect import Parameter
from numbers import Real
from typing import Any

import numpy as np

from icda.errors import InputError, InputTypeError


def full_signature(cls: type) -> inspect.Signature:
    """The arguments of a class with those its bases take: what `help` and option checks should see.

    The first __init__ in the order of resolution gives the positional arguments; every further one that options are passed
    on to adds its keyword arguments.

    >>> class Base:
    ...     def __init__(self, size, *, rate=0.5): ...
    >>> class Loss(Base):
    ...     def __init__(self, size, *, beta=0.1, **options):
    ...         super().__init__(size, **options)
    >>> full_signature(Loss)
    <Signature (size, *, beta=0.1, rate=0.5)>
    """
    makers = [vars(base)["__init__"] for base in cls.__mro__[:-1] if "__init__" in vars(base)]
    _, *own = inspect.signature(makers[0]).parameters.values()
    merged = {each.name: each for each in own if each.kind is not Parameter.VAR_KEYWORD}
    passed_on = [each for each in own if each.kind is Parameter.VAR_KEYWORD]
    for maker in makers[1:]:
        if not passed_on:
            break
        parameters = inspect.signature(maker).parameters.values()
        passed_on = [each for each in parameters if each.kind is Parameter.VAR_KEYWORD]
        for each in parameters:
            if each.kind is Parameter.KEYWORD_ONLY:
                merged.setdefault(each.name, each)
    return inspect.Signature([*merged.values(), *passed_on])


def check_kinds(
    signature: inspect.Signature, values: Mapping[str, Any], owner: str, skip: tuple[str, ...] = (), finite: bool = True
) -> None:
    """Refuse a setting that is not of the kind of its default: a number that is finite, a whole number, a truth value.

    Ranges are checked where a setting is used, and with `finite=False` whether a number is finite too.
    Settings without a default, or with None, are left to their owner.

    >>> class Loss:
    ...     def __init__(self, *, rate=0.5, rank=16): ...
    >>> check_kinds(inspect.signature(Loss), {"rate": 1, "rank": 8}, "Loss")
    >>> check_kinds(inspect.signature(Loss), {"rate": "fast"}, "Loss")
    Traceback (most recent call last):
    icda.errors.InputTypeError: Loss expects rate as a number, got 'fast'.
    """
    for name, value in values.items():
        parameter = signature.parameters.get(name)
        if parameter is None or name in skip:
            continue
        kind = type(parameter.default)
        is_flag = isinstance(value, bool | np.bool_)
        if kind is bool and not is_flag:
            raise InputTypeError(f"{owner} expects {name} as True or False, got {value!r}.")
        if kind is int and (is_flag or not hasattr(value, "__index__")):
            raise InputTypeError(f"{owner} expects {name} as a whole number, got {value!r}.")
        if kind is float and (is_flag or not isinstance(value, Real)):
            raise InputTypeError(f"{owner} expects {name} as a number, got {value!r}.")
        if finite and kind is float and not math.isfinite(value):
            raise InputError(f"{owner} expects {name} to be finite, got {value!r}.")
