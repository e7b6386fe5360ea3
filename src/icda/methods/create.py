"""From a name and options to a method."""

from __future__ import annotations

import contextlib
import inspect
import math
import numbers
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from icda.errors import InputError
from icda.losses import LOSSES
from icda.methods.base import METHODS, Method, Setup
from icda.methods.from_loss import LossMethod
from icda.ranges import check_numbers
from icda.registry import UnknownNameError, did_you_mean

# What a loss can do, but a training under one recipe leaves as it is.
NOT_CHOSEN = ("reduction", "ignore_index", "class_weight")


def method_names() -> list[str]:
    """All methods, losses included.

    >>> "icda" in method_names() and "cross_entropy" in method_names()
    True
    """
    return sorted({*METHODS, *LOSSES})


def resolve_method(name: str) -> str:
    """The registered name behind a name or alias such as "ce" or "la".

    >>> resolve_method("LA")
    'logit_adjustment'
    >>> resolve_method("idcda")
    Traceback (most recent call last):
    icda.registry.UnknownNameError: unknown method 'idcda': did you mean 'icda'? Known: ...
    """
    for registry in (METHODS, LOSSES):
        if name in registry:
            return registry.resolve(name)
    hint = did_you_mean(name, method_names())
    raise UnknownNameError(f"unknown method {name!r}: {hint}Known: {', '.join(method_names())}.")


def method_class(name: str) -> type[Any]:
    """The class behind a name: a Method, or a loss that becomes one."""
    name = resolve_method(name)
    return METHODS.get(name) if name in METHODS else LOSSES.get(name)  # type: ignore[return-value]


def method_type(name: str) -> type[Method]:
    """The Method behind a name; a loss is trained by LossMethod."""
    name = resolve_method(name)
    return METHODS.get(name) if name in METHODS else LossMethod  # type: ignore[return-value]


def method_needs(name: str) -> frozenset[str]:
    """What a task must have for a method, such as groups or metadata."""
    return method_type(name).needs


def num_networks(name: str) -> int:
    """How many networks a method trains."""
    return method_type(name).num_networks


def create_method(name: str, setup: Setup, options: Mapping[str, Any] | None = None) -> Method:
    """Make a method; an option it does not know is refused with the nearest one it does, and so is one of a wrong type.

    >>> import torch
    >>> setup = Setup(num_classes=3, feature_dim=4, class_counts=torch.ones(3), epochs=1, num_samples=3)
    >>> create_method("icda", setup, {"lambda0": 0.25}).criterion.lambda0
    0.25
    """
    cls = method_class(name)
    options = dict(options or {})
    known = option_names(cls)
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known)
            raise UnknownNameError(
                f"method {name!r} has no option {option!r}: {hint}Known: {', '.join(known) or 'none'}."
            )
    check_option_types(name, options)
    build: Callable[..., Method] = partial(LossMethod.build, cls) if resolve_method(name) in LOSSES else cls
    made = build(setup, **options)
    check_numbers(options, {})  # NaN and infinity that the method has let pass
    return made


def option_names(cls: type[Any]) -> list[str]:
    """Keyword-only arguments of a method or loss; a method that passes `**options` on adds those of its loss.

    Tensors, such as a table of counts, are data and not options: nobody can write them in a command.
    """
    names: list[str] = []
    passes_on = False
    for parameter in inspect.signature(cls).parameters.values():
        passes_on |= parameter.kind is parameter.VAR_KEYWORD
        is_option = parameter.name not in NOT_CHOSEN and "Tensor" not in str(parameter.annotation)
        if parameter.kind is parameter.KEYWORD_ONLY and is_option:
            names.append(parameter.name)
    if passes_on and getattr(cls, "inner_loss", None) is not None:
        names += option_names(cls.inner_loss)
    return names


def check_option_types(name: str, options: Mapping[str, Any]) -> None:
    """Refuse values that the annotation of a method's option rules out; which values are sensible the method says.

    >>> check_option_types("icda", {"lambda0": 1, "semantic": False, "covariance": "full"})
    >>> check_option_types("icda", {"lambda0": "abc"})
    Traceback (most recent call last):
    icda.errors.InputError: option lambda0 of method 'icda' must be a number, got 'abc'.
    """
    annotations = _option_annotations(method_class(name))
    for option, value in options.items():
        annotation = annotations.get(option, Any)
        if _fits(value, annotation):
            continue
        unread = _is_unread_number(value, annotation)
        hint = " YAML reads that as a text: write it with a point, as 1.0e-3." if unread else ""
        raise InputError(f"option {option} of method {name!r} must be {_described(annotation)}, got {value!r}.{hint}")


def _option_annotations(cls: type[Any]) -> dict[str, Any]:
    inner = getattr(cls, "inner_loss", None)
    passed_on = {} if inner is None else _option_annotations(inner)
    own: dict[str, Any] = {}
    for base in reversed(cls.__mro__):  # a loss passes options on to its base
        # A method of somebody's own may name types that exist for type checkers only.
        with contextlib.suppress(NameError):
            own |= typing.get_type_hints(vars(base)["__init__"]) if "__init__" in vars(base) else {}
    return {**passed_on, **own}


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a value has the annotated type; a whole number is a number, a truth value is not."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in typing.get_args(annotation))
    if origin is Sequence:
        (entry,) = typing.get_args(annotation)
        return isinstance(value, list | tuple) and all(_fits(part, entry) for part in value)
    if annotation in (int, float):
        kind = numbers.Integral if annotation is int else numbers.Real
        return isinstance(value, kind) and not isinstance(value, bool)
    # Choices, annotated as Literal, are refused by the methods themselves.
    return annotation is Any or not isinstance(annotation, type) or isinstance(value, annotation)


def _is_unread_number(value: Any, annotation: Any) -> bool:
    """Whether a text such as 1e-3, which YAML does not take for a number, stands where one is expected."""
    if not isinstance(value, str):
        return False
    try:
        return math.isfinite(float(value)) and _fits(float(value), annotation)
    except ValueError:
        return False


def _described(annotation: Any) -> str:
    """An annotation in words.

    >>> _described(float | None)
    'a number or none'
    """
    plain = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", type(None): "none"}
    if annotation in plain:
        return plain[annotation]
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_described(part) for part in parts)
    if origin is Sequence:
        return f"a list, each entry {_described(parts[0])}"
    return getattr(annotation, "__name__", str(annotation))
