"""From a name and options to a method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from icda.losses import LOSSES
from icda.methods.base import METHODS, Method, Setup
from icda.methods.from_loss import LossMethod
from icda.registry import UnknownNameError, nearest


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
    guess = nearest(name, method_names())
    hint = f"did you mean {guess!r}? " if guess else ""
    raise UnknownNameError(f"unknown method {name!r}: {hint}Known: {', '.join(method_names())}.")


def method_class(name: str) -> type[Any]:
    """The class behind a name: a Method, or a loss that becomes one."""
    name = resolve_method(name)
    return METHODS.get(name) if name in METHODS else LOSSES.get(name)  # type: ignore[return-value]


def method_needs(name: str) -> frozenset[str]:
    return getattr(method_class(name), "needs", frozenset())


def create_method(name: str, setup: Setup, options: Mapping[str, Any] | None = None) -> Method:
    """Make a method; an option it does not know is refused with the nearest one it does.

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
            guess = nearest(option, known)
            hint = f"did you mean {guess!r}? " if guess else ""
            raise UnknownNameError(
                f"method {name!r} has no option {option!r}: {hint}Known: {', '.join(known) or 'none'}."
            )
    build: Callable[..., Method] = partial(LossMethod.build, cls) if resolve_method(name) in LOSSES else cls
    return build(setup, **options)


def option_names(cls: type[Any]) -> list[str]:
    """Keyword-only arguments of a method or loss; a method that passes `**options` on adds those of its loss."""
    names: list[str] = []
    passes_on = False
    for parameter in inspect.signature(cls).parameters.values():
        passes_on |= parameter.kind is parameter.VAR_KEYWORD
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name != "reduction":
            names.append(parameter.name)
    if passes_on and getattr(cls, "inner_loss", None) is not None:
        names += option_names(cls.inner_loss)
    return names
