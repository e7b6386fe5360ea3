"""Ranges of numbers, declared in the annotation of a setting and checked wherever a setting comes from.

>>> from typing import get_type_hints
>>> def fit(*, rate: Positive = 0.1, share: Share | None = None): ...
>>> check_numbers({"rate": 0.5, "share": None}, get_type_hints(fit, include_extras=True))
>>> check_numbers({"share": 1.5}, get_type_hints(fit, include_extras=True))
Traceback (most recent call last):
icda.errors.InputError: share must lie in [0, 1], got 1.5.
"""

from __future__ import annotations

import functools
import math
import numbers
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from icda.errors import InputError


@dataclass(frozen=True)
class Range:
    """Where a number may lie. The ends belong to it unless they are said to be open; infinity never does."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: Any) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        return bool(above and (value < self.high if self.open_high else value <= self.high))

    def __str__(self) -> str:
        """What a number must be.

        >>> print(Range(0, 1, open_high=True), Range(0), Range(0, open_low=True), Range(1, COUNTABLE), sep="; ")
        lie in [0, 1); not be negative; be positive; be positive
        """
        if self.low == 0 and self.high in (math.inf, COUNTABLE):
            return "be positive" if self.open_low else "not be negative"
        if self.low == 1 and self.high == COUNTABLE:
            return "be positive"
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        return f"lie in {left}{_words(self.low)}, {_words(self.high)}{right}"


def _words(end: float) -> str:
    return str(end) if isinstance(end, int) else f"{end:g}"


COUNTABLE = 2**31 - 1  # more of anything does not fit: a number above it is a slip of the finger
Positive: TypeAlias = Annotated[float, Range(0, open_low=True)]
NotNegative: TypeAlias = Annotated[float, Range(0)]
Share: TypeAlias = Annotated[float, Range(0, 1)]
ShareBelowOne: TypeAlias = Annotated[float, Range(0, 1, open_high=True)]
PositiveInt: TypeAlias = Annotated[int, Range(1, COUNTABLE)]
NotNegativeInt: TypeAlias = Annotated[int, Range(0, COUNTABLE)]
Seed: TypeAlias = Annotated[int, Range(-(2**63), 2**64 - 1)]  # what torch takes


def check_numbers(values: Mapping[str, Any], annotations: Mapping[str, Any]) -> None:
    """Refuse numbers that are not finite, or outside of the range that their annotation declares."""
    for name, value in values.items():
        _check(name, value, annotations.get(name, Any))


def check_options(cls: type, options: Mapping[str, Any]) -> None:
    """`check_numbers` for the keyword arguments that an object of `cls` is to be made with.

    NaN and infinity are left to the class where it declares no range; `check_numbers` is for what it has let pass.
    """
    annotations = _annotations(cls)
    for name, value in options.items():
        annotation = annotations.get(name, Any)
        entries = value if isinstance(value, list | tuple) else (value,)
        odd = any(isinstance(entry, float) and not math.isfinite(entry) for entry in entries)
        if not odd or _ranges(annotation):
            _check(name, value, annotation)


class RangesChecked(type):
    """Kind of classes whose options are finite numbers within their ranges, whoever makes an object of them.

    Options named in `may_be_infinite` of the class are its own affair.
    """

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        own = getattr(cls, "may_be_infinite", ())
        checked = {name: value for name, value in options.items() if name not in own}
        check_options(cls, checked)
        made = super().__call__(*arguments, **options)
        check_numbers(checked, {})
        return made


@functools.cache
def _annotations(cls: type) -> Mapping[str, Any]:
    """Annotations of the arguments of a class and of its bases, to which it may pass options on."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if "__init__" in vars(base):
            try:
                found |= typing.get_type_hints(vars(base)["__init__"], include_extras=True)
            except NameError:  # types that exist for type checkers only
                continue
    return found


def _check(name: str, value: Any, annotation: Any) -> None:
    if isinstance(value, list | tuple):
        entry = next((part for part in _parts(annotation) if typing.get_args(part)), Any)
        for number in value:
            _check(name, number, next(iter(typing.get_args(entry)), Any))
        return
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return
    if not _is_finite(value):
        raise InputError(f"{name} must be a finite number, got {value}.")
    for allowed in _ranges(annotation):
        if value not in allowed:
            raise InputError(f"{name} must {allowed}, got {value}.")


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def _ranges(annotation: Any) -> list[Range]:
    """The ranges that an annotation declares; a whole number without one can be counted to."""
    parts = _parts(annotation)
    declared = [extra for part in parts for extra in getattr(part, "__metadata__", ()) if isinstance(extra, Range)]
    return [Range(-COUNTABLE, COUNTABLE)] if int in parts and not declared else declared


def _parts(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the annotation itself."""
    is_union = typing.get_origin(annotation) is not Annotated and type(None) in typing.get_args(annotation)
    return typing.get_args(annotation) if is_union else (annotation,)
