"""`icda fit --on ray`: a head from rows that stay where they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from icda._version import __version__
from icda.data.embedding.samples import Columns
from icda.data.own.blocks import feature_names, find_blocks, names_split, number_kind
from icda.engines import Engine
from icda.heads.blocks import BlockRows
from icda.heads.problem import AUGMENTED
from icda.serving.head import HeadModel
from icda.serving.head_fit import check_method, done_in_words, fit_rows
from icda.serving.reads import Reads

ALL_ROWS = (
    "The file names a split. Over blocks all rows are fitted, those of the test split too: to judge the model, write the "
    "rows for the fit into a file of their own."
)


def fit_from_blocks(
    path: Path,
    wanted: Columns,
    method: str,
    engine: Engine,
    say: Callable[[str], None] | None = None,
    seed: int = 0,
) -> HeadModel:
    """The model: the named loss, or what the audit of a sample calls for (`auto`), fitted to all rows.

    There is no trial: judge the model with `icda predict` on rows that were kept apart.
    """
    name = check_method(method)
    blocks, say = find_blocks(path, wanted), say or (lambda _: None)
    notes = [ALL_ROWS] if names_split(blocks[0]) else []
    for note in notes:
        say(note)
    dtype, full = number_kind(blocks[0]), name in AUGMENTED
    known = wanted.groups is not None
    rows = BlockRows.gather(blocks, engine, full=full, dtype=dtype, seed=seed, say=say, groups=known)
    head, assessment, fitted = fit_rows(rows, name)
    facts: dict[str, object] = {"icda": __version__, "method": name, "done": done_in_words(name, head), "C": head.C}
    if assessment is not None:
        facts["found"] = assessment.summary
    if head.treatment is not None:
        facts["treatment"] = head.treatment.as_dict()
    facts |= {
        "notes": notes,
        "samples": rows.shape[0],
        "class_counts": dict(zip(map(str, head.classes), rows.counts.tolist(), strict=True)),
        "iterations": fitted.iterations,
        "converged": fitted.converged,
        "passes": rows.passes,
    }
    label = None if path.suffix.lower() == ".npy" else wanted.labels
    columns, array = feature_names(blocks[0])
    reads = Reads("features", head.coef.shape[1], label=label, columns=columns, array=array)
    return HeadModel(head.classes, head.coef, head.intercept, reads, head.shortcut, facts)
