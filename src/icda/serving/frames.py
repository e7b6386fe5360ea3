"""`icda fit` from Python, on a data frame."""

from typing import Any

import numpy as np

from icda.data.embedding.samples import Reads, Samples
from icda.data.missing import known_groups
from icda.data.own.encoding import frame_cells
from icda.data.own.feature_files import with_encoded
from icda.errors import InputError
from icda.registry import did_you_mean
from icda.serving.fit_data import checked
from icda.serving.fitting import Fitted, fit_model
from icda.serving.head_fit import AUTO


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
    labels, ids = np.asarray(frame[label].tolist()), np.asarray(frame.index)
    given = None if groups is None else known_groups(np.array(frame[groups].tolist(), dtype=object))
    samples = Samples(Reads("features", label=label, group=groups), ids, labels=labels, groups=given)
    return fit_model(checked(with_encoded(samples, frame_cells(frame, used)), "the data frame"), method, seed)
