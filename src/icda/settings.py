"""Settings from a command, a file or Python: annotations say what they may be, pydantic reads them, once.

pydantic is imported when the first setting is checked, and yaml when the first file is read: `icda --help` does neither.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, get_args

from icda.errors import InputError
from icda.ranges import COUNTABLE
from icda.registry import UnknownNameError, did_you_mean
from icda.signature import full_signature

if TYPE_CHECKING:
    from pydantic import TypeAdapter


P = ParamSpec("P")


def check(values: Mapping[str, Any], kinds: Mapping[str, Any], origin: str = "") -> None:
    """Refuse the first value that its annotation in `kinds` rules out.

    A truth value is no number, a number is finite, and a whole number without a range can be counted to.

    >>> from icda.ranges import Positive, Share
    >>> check({"rate": 1, "share": None}, {"rate": Positive, "share": Share | None})
    >>> check({"share": 1.5}, {"share": Share})
    Traceback (most recent call last):
    icda.errors.InputError: share must be less than or equal to 1, got 1.5.
    """
    from pydantic import ValidationError

    for name, value in values.items():
        kind = kinds.get(name, Any)
        plain = value.item() if type(value).__module__ == "numpy" and not getattr(value, "shape", None) else value
        try:
            _adapter(kind).validate_python(plain)
        except ValidationError as error:
            raise InputError(f"{origin}{_sentence(name, error)}") from None
        if int in (kind, *get_args(kind)) and isinstance(plain, int) and abs(plain) > COUNTABLE:
            raise InputError(f"{origin}{name} must be between -{COUNTABLE} and {COUNTABLE}, got {value}.")


def check_names(names: Iterable[str], known: Collection[str], owner: str, what: str) -> None:
    """Refuse a name that is not known, with the nearest that is."""
    for name in names:
        if name not in known:
            hint = did_you_mean(str(name), known)  # keys of YAML may be numbers or dates
            raise UnknownNameError(f"{owner} has no {what} {name!r}: {hint}Known: {', '.join(known) or 'none'}.")


def checked(init: Callable[P, None]) -> Callable[P, None]:
    """A constructor whose keyword arguments are checked against their annotations, and those it passes on."""

    @functools.wraps(init)
    def construct(*arguments: P.args, **options: P.kwargs) -> None:
        cls = type(arguments[0])
        if cls.__init__ is construct:  # a subclass has checked what it passes on
            check(options, option_kinds(cls))
        init(*arguments, **options)

    construct.checks_options = True  # type: ignore[attr-defined]
    return construct


def option_kinds(cls: type[Any]) -> dict[str, Any]:
    """Annotations of the keyword-only arguments of a class and, as long as it passes `**options` on, of its bases.

    What a class passes on may also go to the loss it names as `inner_loss`.
    """
    known = full_signature(cls, _with_types).parameters.values()
    kinds = {each.name: each.annotation for each in known if each.kind is each.KEYWORD_ONLY}
    kinds = {name: Any if isinstance(kind, str) or kind is inspect._empty else kind for name, kind in kinds.items()}
    passes_on = any(each.kind is each.VAR_KEYWORD for each in inspect.signature(cls.__init__).parameters.values())
    inner = getattr(cls, "inner_loss", None) if passes_on else None
    return kinds if inner is None else kinds | {**option_kinds(inner), **kinds}


def _with_types(maker: Callable[..., None]) -> inspect.Signature:
    """Annotations as what they stand for, and as texts where that exists for type checkers only."""
    try:
        return inspect.signature(maker, eval_str=True)
    except NameError:
        return inspect.signature(maker)


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True))


def _sentence(name: str, error: Any) -> str:
    """What pydantic found, as "NAME must be THIS or THAT, got VALUE."."""
    problems = error.errors(include_url=False)
    first = problems[0]
    place = "".join(f"[{part}]" for part in first["loc"] if isinstance(part, int))
    said = ("a list" if each["type"] == "sequence_str" else each["msg"] for each in problems)
    wanted = " or ".join(dict.fromkeys(words.removeprefix("Input should be ") for words in said))
    value, hint = first["input"], ""
    if first["type"] == "literal_error":
        hint = did_you_mean(str(value), [word.strip("'") for word in wanted.replace(" or ", ", ").split(", ")]).strip()
    elif first["type"] == "float_type" and isinstance(value, str):
        with contextlib.suppress(ValueError):
            float(value)
            hint = "YAML reads that as a text, write it with a point, as 1.0e-3."
    return f"{name}{place} must be {wanted}, got {value!r}{': ' if hint else '.'}{hint}"


def read_yaml(text: str, origin: str) -> Any:
    """The value of a YAML text.

    >>> read_yaml("{epochs: 3, milestones: [0.5]}", "a.yaml")
    {'epochs': 3, 'milestones': [0.5]}
    >>> read_yaml("a: [", "a.yaml")
    Traceback (most recent call last):
    icda.errors.InputError: a.yaml cannot be read as YAML: expected the node content, ... (line 1, column 5).
    """
    import yaml

    try:
        aliased = any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader))
        value = None if aliased else yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        raise InputError(f"{origin} cannot be read as YAML: {getattr(error, 'problem', error)}{where}.") from error
    except (RecursionError, ValueError) as error:  # nested too deeply; or such as the date 2020-99-99
        raise InputError(f"{origin} cannot be read as YAML: {error}.") from error
    if aliased:
        raise InputError(f"{origin} has YAML aliases (*name): write out what they stand for.")
    return value
