"""`icda fit` from Python, on a data frame."""

from __future__ import annotations

from typing import Any

import numpy as np

from icda.data.own.encoding import encode_table, encoding_notes, feature_names, frame_cells, plan_columns
from icda.errors import InputError
from icda.registry import did_you_mean
from icda.serving.fit_data import FitData, check_classes, check_finite, known_groups
from icda.serving.fitting import Fitted, fit_model
from icda.serving.head_fit import AUTO
from icda.serving.reads import Reads


def fit_frame(frame: Any, label: str, groups: str | None = None, method: str = AUTO, seed: int = 0) -> Fitted:
    """Audit a data frame, fit the head that the audit recommends, and judge it on samples it has not seen.

    Words, categories, truth values, dates and missing values become features as for a .csv.

    Args:
        frame: A pandas DataFrame, one row per sample.
        label: The column with the classes.
        groups: The column with known groups, which is no feature; missing where a group is not known.
        method: auto, ce, la, isda, risda or icda.
        seed: Of all that is drawn.

    Returns:
        The fit: `.model` predicts data frames and is saved by `.model.save(folder)`, `.trial` says what it brought.
    """
    for name in filter(None, (label, groups)):
        if name not in frame.columns:
            known = [str(column) for column in frame.columns]
            raise InputError(f"the data frame has no column {name!r}: {did_you_mean(name, known)}")
    used = [name for name in frame.columns if name not in (label, groups)]
    if strange := [name for name in used if not isinstance(name, str)]:
        raise InputError(
            f"columns need names that are texts, got {strange[0]!r}: frame.columns = frame.columns.map(str)."
        )
    cells = frame_cells(frame, used)
    plan, dropped = plan_columns(cells, np.ones(len(frame), dtype=bool))
    if not plan:
        raise InputError(f"no column can be used beside {label!r}.")
    features, columns = encode_table(cells, plan), feature_names(plan)
    check_finite(features, columns, "the data frame")
    y = np.asarray(frame[label].tolist())
    check_classes(y, None, "the data frame")
    given = None if groups is None else known_groups(np.array(frame[groups].tolist(), dtype=object), "the data frame")
    reads = Reads("features", len(columns), columns=columns, label=label, group=groups, table=plan)
    names = [str(name) for name in frame.index]
    notes = tuple(encoding_notes(plan, dropped))
    return fit_model(FitData(features, y, names, reads, None, given, None, notes, suffix=".csv"), method, seed)
