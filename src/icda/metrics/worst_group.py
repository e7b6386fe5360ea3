"""The worst group as a score of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from icda.errors import OperationError


def worst_group_score(y_true: Any, y_pred: Any, *, groups: Any) -> float:
    """The accuracy in the group where it is lowest; `groups` (N,) are numbers or texts.

    >>> worst_group_score([0, 0, 1, 1], [0, 0, 1, 0], groups=["a", "a", "b", "b"])
    0.5
    """
    from sklearn.utils.validation import check_consistent_length, column_or_1d  # takes a second to import

    y_true, y_pred, groups = column_or_1d(y_true), column_or_1d(y_pred), column_or_1d(groups)
    check_consistent_length(y_true, y_pred, groups)
    hits = y_true == y_pred
    return min(float(hits[groups == group].mean()) for group in np.unique(groups))


def worst_group_scorer() -> Any:
    """`worst_group_score` for `scoring=` of GridSearchCV and cross_validate, which hand `groups` on to it.

    scikit-learn does so with metadata routing: `sklearn.set_config(enable_metadata_routing=True)`, and then
    `GridSearchCV(model, grid, scoring=worst_group_scorer()).fit(X, y, groups=groups)`. A model whose `fit` takes groups
    too must say whether it takes them: `ICDAClassifier().set_fit_request(groups=False)`.
    """
    from sklearn.metrics import make_scorer

    try:
        return make_scorer(worst_group_score).set_score_request(groups=True)
    except RuntimeError as error:
        raise OperationError(
            "worst_group_scorer needs scikit-learn's metadata routing, which hands the groups on: call "
            "sklearn.set_config(enable_metadata_routing=True) first."
        ) from error
