"""Names that users type, and what stands behind them."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from icda.errors import InputError

T = TypeVar("T")


class UnknownNameError(InputError):
    """A name that is not in a registry; the message proposes the nearest one."""


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The choice most like `name`, or None when nothing is close.

    >>> nearest("icd", ["icda", "isda", "ce"])
    'icda'
    """
    matches = difflib.get_close_matches(name.lower(), list(choices), n=5, cutoff=0.5)
    swapped = [match for match in matches if sorted(match) == sorted(name.lower())]  # two letters the wrong way round
    return next(iter(swapped or matches), None)


class Registry(Generic[T]):
    """A mapping from names to objects, filled by the modules of one package.

    A module registers its object with a decorator; the first look-up imports every module of the package, so adding an
    entry means adding a file and nothing else. Hyphens and underscores are the same.

    >>> fruit = Registry("fruit")
    >>> @fruit.register("apple", "malus")
    ... class Apple: ...
    >>> fruit.get("Malus") is Apple
    True
    >>> fruit.get("aple")
    Traceback (most recent call last):
    icda.registry.UnknownNameError: unknown fruit 'aple': did you mean 'apple'? Known: apple.
    """

    def __init__(self, kind: str, package: str | None = None) -> None:
        self.kind = kind
        self._package = package
        self._entries: dict[str, T] = {}
        self._aliases: dict[str, str] = {}

    def register(self, name: str, *aliases: str) -> Callable[[T], T]:
        def decorate(entry: T) -> T:
            for key in (name, *aliases):
                known = self._aliases.get(_normal(key))
                if known is not None and self._entries[known] is not entry:
                    raise InputError(f"{self.kind} {key!r} is registered twice")
                self._aliases[_normal(key)] = name
            self._entries[name] = entry
            return entry

        return decorate

    def resolve(self, name: str) -> str:
        """The registered name behind a name or alias."""
        self._discover()
        if _normal(name) not in self._aliases:
            guess = nearest(_normal(name), self._aliases)
            hint = f"did you mean {self._aliases[guess]!r}? " if guess else ""
            raise UnknownNameError(f"unknown {self.kind} {name!r}: {hint}Known: {', '.join(self)}.")
        return self._aliases[_normal(name)]

    def get(self, name: str) -> T:
        return self._entries[self.resolve(name)]

    def __iter__(self) -> Iterator[str]:
        self._discover()
        return iter(sorted(self._entries))

    def __contains__(self, name: str) -> bool:
        self._discover()
        return _normal(name) in self._aliases

    def _discover(self) -> None:
        if self._package is None:
            return
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
        self._package = None  # only now: a module that fails to import must fail again, not leave a registry half full


def _normal(name: str) -> str:
    return name.lower().replace("-", "_")
