"""Names that users type, and what stands behind them."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any, Generic, TypeVar

from icda import plugins
from icda.errors import InputError, InputTypeError

T = TypeVar("T")


class UnknownNameError(InputError):
    """A name that is not in a registry; the message proposes the nearest one."""


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The choice most like `name`, or None when nothing is close."""
    matches = difflib.get_close_matches(name.lower(), list(choices), n=5, cutoff=0.5)
    swapped = [match for match in matches if sorted(match) == sorted(name.lower())]  # two letters the wrong way round
    return next(iter(swapped or matches), None)


def did_you_mean(name: str, choices: Iterable[str], shown: Callable[[str], str] = str) -> str:
    """ "did you mean 'icda'? " for the choice most like `name`, as `shown` writes it; nothing when none is close."""
    guess = nearest(name, choices)
    return "" if guess is None else f"did you mean {shown(guess)!r}? "


class Registry(Generic[T]):
    """A mapping from names to objects, filled by the modules of one package and by packages from outside.

    The first look-up imports every module of the package, so adding an entry means adding a file that registers it. Of
    installed packages it reads what they offer as entry points of `group`; one is imported when its name is asked for.
    Hyphens and underscores are the same. An entry from outside must be an instance of `entry_type`, if there is one, and
    takes no name that icda has here or in the registry `beside` this one: users name entries of both alike.

    >>> fruit = Registry("fruit")
    >>> @fruit.register("apple", "malus")
    ... class Apple: ...
    >>> fruit.get("Malus") is Apple
    True
    >>> fruit.get("aple")
    Traceback (most recent call last):
    icda.registry.UnknownNameError: unknown fruit 'aple': did you mean 'apple'? Known: apple.
    """

    def __init__(
        self,
        kind: str,
        package: str | None = None,
        group: str | None = None,
        entry_type: type[Any] | None = None,
        shapes_results: bool = True,
        beside: Registry[Any] | None = None,
    ) -> None:
        self.kind, self._shapes_results = kind, shapes_results
        self._package, self._group, self._entry_type = package, group, entry_type
        self._beside = beside
        self._discovered = package is None and group is None
        self._entries: dict[str, T] = {}
        self._aliases: dict[str, str] = {}
        self._owners: dict[str, str] = {}  # whose an entry from outside is
        self._offers: dict[str, list[EntryPoint]] = {}  # of installed packages, not imported yet

    def register(self, name: str, *aliases: str) -> Callable[[T], T]:
        # A plugin may import modules of ours, which register theirs while it is being loaded: the caller says whose it is.
        ours = str(sys._getframe(1).f_globals.get("__name__")).startswith("icda.")
        owner = None if ours else plugins.current()

        def decorate(entry: T) -> T:
            self._add(entry, owner, name, *aliases)
            return entry

        return decorate

    def _add(self, entry: T, owner: str | None, name: str, *aliases: str) -> None:
        if owner is not None:
            self._discover()  # so that a name of ours is found taken here, while it is known who asks for it
            if self._entry_type is not None and not isinstance(entry, self._entry_type):
                expected = self._entry_type.__name__
                raise InputTypeError(f"{self.kind} {name!r} must be an instance of {expected}, got {entry!r}.")
            self._owners[name] = owner
        for key in (name, *aliases):
            known = self._aliases.get(_normal(key))
            if known is not None and self._entries[known] is not entry:
                raise InputError(f"{self.kind} {key!r} is registered twice")
            if owner is not None and self._beside is not None and self._beside._is_ours(key):
                raise InputError(
                    f"{self.kind} {key!r} is registered twice: icda has a {self._beside.kind} of that name"
                )
            self._aliases[_normal(key)] = name
        self._entries[name] = entry

    def resolve(self, name: str) -> str:
        """The registered name behind a name or alias."""
        if name not in self:
            known = [*self._aliases, *self._offers]
            hint = did_you_mean(_normal(name), known, lambda guess: self._aliases.get(guess, guess))
            raise UnknownNameError(f"unknown {self.kind} {name!r}: {hint}Known: {', '.join(self)}.")
        if _normal(name) not in self._aliases:
            self._load_offer(_normal(name))
        return self._aliases[_normal(name)]

    def get(self, name: str) -> T:
        return self._entries[self.resolve(name)]

    def owner(self, name: str) -> str | None:
        """Whose an entry from outside is, in words; None for one of ours."""
        if _normal(name) in self._aliases:
            return self._owners.get(self._aliases[_normal(name)])
        return plugins.package_of(self._offers[_normal(name)][0]) if name in self else None

    def __iter__(self) -> Iterator[str]:
        self._discover()
        offered = (entry_points[0].name for key, entry_points in self._offers.items() if key not in self._aliases)
        return iter(sorted({*self._entries, *offered}))

    def __contains__(self, name: str) -> bool:
        self._discover()
        return _normal(name) in self._aliases or _normal(name) in self._offers

    def _is_ours(self, name: str) -> bool:
        self._discover()
        return _normal(name) in self._aliases and self._aliases[_normal(name)] not in self._owners

    def _discover(self) -> None:
        if self._discovered:
            return
        if self._package is not None:
            package = importlib.import_module(self._package)
            for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
                importlib.import_module(module.name)
        self._offers.clear()
        for name, entry_points in plugins.offers(self._group).items() if self._group is not None else ():
            taken = self._aliases.get(_normal(name))
            if taken is None and not (self._beside is not None and self._beside._is_ours(name)):
                self._offers.setdefault(_normal(name), []).extend(entry_points)
            elif taken is None or taken not in self._owners:
                owner = plugins.package_of(entry_points[0])
                sentence = f"{self.kind} {name!r} of {owner} is left out: icda has one of that name."
                warnings.warn(sentence, plugins.PluginWarning, stacklevel=3)
        self._discovered = True  # only now: a module that fails to import must fail again, not leave it half full

    def _load_offer(self, key: str) -> None:
        """Import what a package offers under a name; a failure touches no other entry."""
        first, *others = self._offers[key]
        owner = plugins.package_of(first)
        if others:
            also = ", ".join(plugins.package_of(other) for other in others)
            raise plugins.PluginError(f"{self.kind} {first.name!r} is offered by {owner} and {also}: uninstall one.")
        with plugins.loading(owner, f"{self.kind} {first.name!r} of {owner}"):
            entry = first.load()
            if not isinstance(entry, ModuleType):
                self._add(entry, owner, first.name)
            elif key not in self._aliases:
                raise InputError(f"module {first.value} registers no {self.kind} of that name.")
        if self._shapes_results:  # a command does not: its version is not written into them
            plugins.note_version(first)


def _normal(name: str) -> str:
    return name.lower().replace("-", "_")
