"""Optional packages: imported when first used, with an error that names the extra to install."""

import importlib
from types import ModuleType

from icda.errors import IcdaError


class MissingExtraError(IcdaError, ImportError):
    """An optional package is not installed."""


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import `module`, or say which extra of icda brings it.

    >>> require("no_such_package", "hf", "text models")
    Traceback (most recent call last):
    icda.extras.MissingExtraError: text models need the package 'no_such_package': pip install "icda[hf]"
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A package that is present but misses one of its own parts is another problem: show it as it is.
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtraError(f'{purpose} need the package {error.name!r}: pip install "icda[{extra}]"') from error
