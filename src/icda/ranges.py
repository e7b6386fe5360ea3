"""Ranges of numbers, for the annotations of settings; `icda.settings` checks them."""

from __future__ import annotations

import numbers
from typing import Annotated, Any, TypeAlias

from annotated_types import Ge, Gt, Interval

COUNTABLE = 2**31 - 1  # more of anything does not fit: a number above it is a slip of the finger
Positive: TypeAlias = Annotated[float, Gt(0)]
NotNegative: TypeAlias = Annotated[float, Ge(0)]
Share: TypeAlias = Annotated[float, Interval(ge=0, le=1)]
ShareBelowOne: TypeAlias = Annotated[float, Interval(ge=0, lt=1)]
ShareAboveZero: TypeAlias = Annotated[float, Interval(gt=0, le=1)]
OpenShare: TypeAlias = Annotated[float, Interval(gt=0, lt=1)]
PositiveInt: TypeAlias = Annotated[int, Interval(ge=1, le=COUNTABLE)]
NotNegativeInt: TypeAlias = Annotated[int, Interval(ge=0, le=COUNTABLE)]
Seed: TypeAlias = Annotated[int, Interval(ge=-(2**63), le=2**64 - 1)]  # what torch takes


class RangesChecked(type):
    """Kind of classes whose options are checked, whoever makes an object: for losses, until they check their own."""

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        from icda.settings import check, option_kinds

        own = getattr(cls, "may_be_infinite", ())
        given = {name: value for name, value in options.items() if name not in own and _is_number(value)}
        check(given, option_kinds(cls))
        return super().__call__(*arguments, **options)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
