"""Modules that changed their place in version 0.2: the old names go on working for one version, with a warning.

Nothing is imported until somebody uses an old name. The finder comes before Python's own, which would follow the path of
a renamed package and load its modules a second time. Pickles made by an earlier version are read through it too.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

_ROOMS = {
    "data.datasets": (
        "data",
        "benchmark_files cad_imdb celeba cifar10_small civil_comments digits "
        "glt_annotations glt_task imagenet_glt imagenet_lt mnist mscoco_glt tiny_imagenet tiny_imagenet_clusters "
        "tiny_imagenet_glt waterbirds",
    ),
    "data.own": ("data", "table parquet own_data"),
    "losses.terms": ("losses", "class_balance fused head mapped_variance prior quadratic"),
    "estimators": ("integrations", "classifier meta_classifier streaming samples"),
    "auditing": ("explain.audit", "console imbalance inputs label_noise recommendation result run ties"),
    "bench.suites": ("bench", "suite suite_table suite_figure verdict runner"),
    "bench.cost": (
        "bench",
        "speed memory fit_time large_fit meta_speed method_cost network_cost step_cost report_size",
    ),
    "bench.studies": ("bench", "group_strengths meta_learning audit figures"),
    "bench.studies.embeddings": ("bench.embeddings", "methods run sets"),
}

MOVED = {
    f"icda.{old}.{name}": f"icda.{new}.{name}" for new, (old, names) in _ROOMS.items() for name in names.split()
} | {
    "icda.explain.audit": "icda.auditing",
    "icda.bench.claims": "icda.results.claims",
    "icda.bench.embeddings": "icda.bench.studies.embeddings",
    "icda.integrations.linear_predictions": "icda.estimators.predictions",
    "icda.report.audit_page": "icda.auditing.page",
}


class _OldName(importlib.abc.Loader):
    """Gives the module at its new place."""

    def __init__(self, new: str) -> None:
        self.new = new

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        warnings.warn(
            f"{spec.name} is now {self.new}; the old name goes in the next version.", DeprecationWarning, stacklevel=2
        )
        module = importlib.import_module(self.new)
        self.true_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.true_spec  # the import system wrote the old name over it


class _MovedFinder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in MOVED:
            return None
        return importlib.machinery.ModuleSpec(name, _OldName(MOVED[name]))


def install() -> None:
    """Answer for the old names, once."""
    if not any(isinstance(finder, _MovedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _MovedFinder())
