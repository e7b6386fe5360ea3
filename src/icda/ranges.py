"""Ranges of numbers, for the annotations of settings; `icda.settings` checks them."""

from typing import Annotated, TypeAlias

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
