"""Losses by name: those of this package, which say their names themselves, and those of plugins."""

import importlib
import pkgutil
from typing import Any

from icda import losses
from icda.losses.base import AdjustedLoss
from icda.registry import Registry


class LossRegistry(Registry[type[AdjustedLoss]]):
    """Finds losses by name; using a loss does not need it."""

    def _discover(self) -> None:
        if not self._entries:
            for module in pkgutil.iter_modules(losses.__path__, f"{losses.__name__}."):
                for entry in vars(importlib.import_module(module.name)).values():
                    self._add_named(entry, module.name)
        super()._discover()

    def _add_named(self, entry: Any, module: str) -> None:
        if isinstance(entry, type) and entry.__module__ == module and vars(entry).get("names"):
            self._add(entry, None, *entry.names)  # type: ignore[attr-defined]


LOSSES = LossRegistry("loss", None, "icda.losses", type)
