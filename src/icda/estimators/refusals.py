"""A fit that is refused leaves the estimator as it was."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def unchanged_if_refused(fit: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R]:
    """A method that sets attributes of its object; where it raises, they are put back.

    >>> class Model:
    ...     @unchanged_if_refused
    ...     def fit(self, y):
    ...         self.classes_ = sorted(set(y))
    ...         assert len(self.classes_) > 1
    >>> model = Model()
    >>> model.fit("ab")
    >>> try: model.fit("c")
    ... except AssertionError: print(model.classes_)
    ['a', 'b']
    """

    @functools.wraps(fit)
    def guarded(self: T, *arguments: P.args, **options: P.kwargs) -> R:
        before = dict(vars(self))
        try:
            return fit(self, *arguments, **options)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return guarded
