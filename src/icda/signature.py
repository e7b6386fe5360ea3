"""For losses, estimators and the audit, until they check their own options: `icda.settings` is for all others."""

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
    return inspect.Signature([*merged.values(), *passed_on])


def check_kinds(
    signature: inspect.Signature, values: Mapping[str, Any], owner: str, skip: tuple[str, ...] = (), finite: bool = True
) -> None:
    """Refuse a setting that is not of the kind of its default: a number that is finite, a whole number, a truth value."""
    for name, value in values.items():
        parameter = signature.parameters.get(name)
        if parameter is None or name in skip:
            continue
        kind, is_flag = type(parameter.default), isinstance(value, bool | np.bool_)
        if kind is bool and not is_flag:
            raise InputTypeError(f"{owner} expects {name} as True or False, got {value!r}.")
        if kind is int and (is_flag or not hasattr(value, "__index__")):
            raise InputTypeError(f"{owner} expects {name} as a whole number, got {value!r}.")
        if kind is float and (is_flag or not isinstance(value, Real)):
            raise InputTypeError(f"{owner} expects {name} as a number, got {value!r}.")
        if finite and kind is float and not math.isfinite(value):
            raise InputError(f"{owner} expects {name} to be finite, got {value!r}.")
