"""Errors that speak to users: what was given, what is expected, what to do.

Each is also the built-in error that Python's users expect, so `except ValueError` catches an `InputError`. An error that
is not an `IcdaError` is a mistake of icda or of a package below it: the command line shows its traceback.

>>> try:
...     raise InputError("the learning rate must be positive, got -1: give a number above 0.")
... except ValueError as error:
...     print(isinstance(error, IcdaError))
True
"""


class IcdaError(Exception):
    """Base of every error that icda raises to tell its user something."""


class InputError(IcdaError, ValueError):
    """A value that cannot be used."""


class InputTypeError(IcdaError, TypeError):
    """An object of a kind that cannot be used."""


class MissingFileError(IcdaError, FileNotFoundError):
    """A file or folder that should be there is not."""


class ExistingFileError(IcdaError, FileExistsError):
    """A file or folder is there already and would be lost."""


class UnreadableError(IcdaError, OSError):
    """A file, model or tokeniser is named but cannot be read."""


class OperationError(IcdaError, RuntimeError):
    """What was asked for cannot be done, though each value given is a valid one."""
