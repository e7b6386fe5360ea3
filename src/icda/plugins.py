"""Code from outside the package: entry points of installed packages, and files or modules given by `--plugin`.

A plugin is code, and importing it runs it. So only two things are ever imported: what somebody installed, when its name is
asked for, and what the user of this very command named with `--plugin`. A plugin that a checkpoint or a configuration file
names is not: whoever reads such a file learns what to do.
"""

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from icda.errors import IcdaError, InputError

OPTION = "--plugin"
FILE_MODULE = "icda_plugin_"  # before the name of a file, so that a file called torch.py hides no module


class PluginError(InputError):
    """Code from outside that cannot be loaded, or may not be."""


class PluginWarning(UserWarning):
    """Something from outside is left out, and the rest goes on."""


_given: dict[str, ModuleType] = {}  # what --plugin named, as it was typed, in its order
_versions: dict[str, str] = {}  # of everything from outside that was loaded: a package's version, a file's digest
_loading: list[str] = []  # what is being imported now, the innermost last


def given() -> tuple[str, ...]:
    """The plugins of this process, as they were typed."""
    return tuple(_given)


def versions() -> dict[str, str]:
    """Packages with their version and files with their SHA-256, of all that was loaded from outside."""
    return dict(_versions)


def current() -> str | None:
    """Whose code is being imported now; None for our own."""
    return _loading[-1] if _loading else None


def take(words: Sequence[str]) -> list[str]:
    """The words of a command without `--plugin NAME`; what they name are the plugins of this command from now on."""
    rest, names, coming = [], [], iter(words)
    for word in coming:
        if word == OPTION:
            names.append(next(coming, ""))
        elif word.startswith(f"{OPTION}="):
            names.append(word.removeprefix(f"{OPTION}="))
        else:
            rest.append(word)
    _given.clear()
    load(names)
    return rest


def load(names: Iterable[str]) -> None:
    """Import plugins, each once: the path of a `.py` file, or the name of a module that Python finds."""
    for name in names:
        if name in _given:
            continue
        if not name or name.startswith("-"):
            raise PluginError(f"{OPTION} needs a Python file or a module after it.")
        _given[name] = _load_file(name, Path(name)) if name.endswith(".py") else _load_module(name)


def _load_module(name: str) -> ModuleType:
    with loading(f"plugin {name}"):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # it is there, and what it imports is not
            raise PluginError(
                f"there is no module {name!r}: {OPTION} takes the path of a .py file, or a module."
            ) from error
    version, file = getattr(module, "__version__", None), getattr(module, "__file__", None)
    _versions[name] = str(version) if version or not file else _digest(Path(file))
    return module


def _load_file(name: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise PluginError(f"{OPTION} {name}: there is no such file.")
    module_name = FILE_MODULE + hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8] + "_" + path.stem
    if module_name in sys.modules:  # the same file by another path
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None, "a path that ends in .py has a loader"  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # before it runs: dataclasses look their module up
    try:
        with loading(f"plugin {name}"):
            spec.loader.exec_module(module)
    except PluginError:
        del sys.modules[module_name]
        raise
    _versions[path.name] = _digest(path)
    return module


def _digest(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


@contextmanager
def loading(owner: str, what: str | None = None) -> Iterator[None]:
    """Code of `owner` is imported inside; whatever goes wrong there becomes one sentence on `what`, or on the owner."""
    _loading.append(owner)
    try:
        yield
    except PluginError:
        raise
    except (Exception, SystemExit) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})."
        said = error if isinstance(error, IcdaError) else place
        raise PluginError(f"{what or owner} could not be loaded: {said}") from error
    finally:
        _loading.pop()


def offers(group: str) -> dict[str, list[EntryPoint]]:
    """What installed packages offer in a group of entry points, by name; nothing is imported."""
    by_name: dict[str, list[EntryPoint]] = defaultdict(list)
    for entry_point in entry_points(group=group):
        if entry_point not in by_name[entry_point.name]:  # a path that stands twice on sys.path
            by_name[entry_point.name].append(entry_point)
    return dict(by_name)


def package_of(entry_point: EntryPoint) -> str:
    """The installed package an entry point belongs to, in words."""
    return f"package {entry_point.dist.name}" if entry_point.dist else f"the entry point {entry_point.value!r}"


def note_version(entry_point: EntryPoint) -> None:
    """Remember that something of this package is used here."""
    if entry_point.dist:
        _versions[entry_point.dist.name] = entry_point.dist.version


def check_given(names: Sequence[str], origin: str) -> None:
    """Refuse the plugins that a file names unless the user named them too: a file from a stranger must run no code."""
    if missing := _not_given(names):
        raise PluginError(
            f"{origin} names the plugin {', '.join(missing)}, which is code and is not run unasked: if you trust it, add "
            f"{_as_options(missing)} to this command."
        )


@contextmanager
def explained(names: Sequence[str], origin: str) -> Iterator[None]:
    """Inside, an unknown name may be one of the plugins that `origin` was made with: then say what to do."""
    from icda.registry import UnknownNameError  # registries stand on this module

    try:
        yield
    except UnknownNameError as error:
        missing = _not_given(names)
        if not missing:
            raise
        unknown = str(error).split(":")[0]
        raise PluginError(
            f"{origin} was made with the plugin {', '.join(missing)}, which is not loaded here ({unknown}): if you trust "
            f"it, add {_as_options(missing)} to this command, or install the package that offers it."
        ) from error


def _not_given(names: Sequence[str]) -> list[str]:
    """By the last part of their paths: on another machine a file lies elsewhere."""
    known = {Path(name).name for name in _given}
    return [name for name in names if Path(name).name not in known]


def _as_options(names: Sequence[str]) -> str:
    return " ".join(f"{OPTION} {name}" for name in names)
