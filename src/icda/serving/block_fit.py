"""`icda fit --on ray`: a head from rows that stay where they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from icda._version import __version__
from icda.auditing.inputs import default_inverse_decay
from icda.data.own.blocks import find_blocks
from icda.data.own.feature_files import Wanted
from icda.engines import Engine
from icda.errors import InputError
from icda.linear.block_fit import LOSSES, BlockFit, fit_blocks
from icda.linear.objective import LossSettings
from icda.serving.head import HeadModel
from icda.serving.head_fit import check_method
from icda.serving.reads import Reads


def fit_from_blocks(
    path: Path, wanted: Wanted, method: str, engine: Engine, say: Callable[[str], None] | None = None
) -> tuple[HeadModel, BlockFit]:
    """The model and how the fit went: the named loss, with the weight decay that `icda fit` has for large data.

    No audit and no trial: they read all rows into one process. Audit a sample of the rows first, and judge the model with
    `icda predict` on rows that were kept apart.
    """
    name = check_method(method)
    if name not in LOSSES:
        raise InputError(
            f"--on blocks and --on ray fit a loss that is named ({', '.join(LOSSES)}), got {method!r}: audit a sample of "
            "the rows to learn which, or use one process."
        )
    blocks = find_blocks(path, wanted)
    first = blocks[0].read()[0]
    started = time.perf_counter()
    dtype = torch.float64 if first.dtype.name == "float64" else torch.float32
    found = fit_blocks(
        blocks,
        LossSettings(name),  # type: ignore[arg-type]
        lambda rows, width: 1 / (default_inverse_decay(rows, width) * rows),
        engine,
        dtype=dtype,
        say=say,
    )
    facts = {
        "icda": __version__,
        "method": name,
        "samples": int(found.class_counts.sum()),
        "class_counts": dict(zip(map(str, found.classes), found.class_counts.tolist(), strict=True)),
        "iterations": found.iterations,
        "passes": found.passes,
        "seconds": round(time.perf_counter() - started, 1),
    }
    label = None if path.suffix.lower() == ".npy" else wanted.labels
    reads = Reads("features", first.shape[1], label=label)
    return HeadModel(found.classes, found.coef, found.intercept, reads, facts=facts), found
