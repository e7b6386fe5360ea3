"""What a class can be made with, when its __init__ passes `*sizes` and `**options` on to the next one."""

import inspect
import re
from collections.abc import Callable
from inspect import Parameter


class ShowsOptions:
    """A class whose subclasses show all their options in help(): also those that they pass on."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__signature__ = signature = full_signature(cls)  # type: ignore[attr-defined]
        cls.__doc__ = full_doc(cls, signature)

    def extra_repr(self) -> str:
        """Sizes, and the options that are not at their defaults, for a module's repr()."""
        held = {name: value for name, value in vars(self).items() if isinstance(value, bool | int | float | str)}
        options = inspect.signature(type(self)).parameters
        return ", ".join(
            f"{name}={held[name]!r}" for name in options if name in held and held[name] != options[name].default
        )


def full_signature(cls: type, read: Callable[..., inspect.Signature] = inspect.signature) -> inspect.Signature:
    """The arguments of a class with those of the bases that its `*sizes` and `**options` reach."""
    merged: dict[str, Parameter] = {}
    for maker in (vars(base)["__init__"] for base in cls.__mro__[:-1] if "__init__" in vars(base)):
        _, *parameters = read(maker).parameters.values()
        kinds = {each.kind for each in parameters}
        for each in parameters:
            if each.kind not in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL):
                merged.setdefault(each.name, each)
        if Parameter.VAR_KEYWORD not in kinds:
            break
    return inspect.Signature(sorted(merged.values(), key=lambda each: each.kind))


def full_doc(cls: type, signature: inspect.Signature) -> str:
    """The docstring of a class, its `Args:` with what the bases say of the arguments that they take."""
    described: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found = re.search(r"^Args:\n((?: +.*\n)+)", f"{inspect.cleandoc(base.__doc__ or '')}\n", re.M)
        entries = re.finditer(r"^    (\w+): .*\n(?:     .*\n)*", found[1] if found else "", re.M)
        described |= {entry[1]: entry[0] for entry in entries}
    own = re.sub(r"^Args:\n(?: +.*\n*)+", "", inspect.cleandoc(cls.__doc__ or ""), flags=re.M)
    before, *examples = re.split(r"^(?=>>> )", own, maxsplit=1, flags=re.M)
    section = "".join(described[name] for name in signature.parameters if name in described)
    return "\n\n".join([before.rstrip(), f"Args:\n{section.rstrip()}", *examples])
