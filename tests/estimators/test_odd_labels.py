"""Labels that nobody can sort are one sentence, as scikit-learn's are."""

import numpy as np
import pytest

import icda
from icda.errors import InputError

Y = np.arange(40) % 2
X = np.random.default_rng(0).normal(size=(40, 3)) + Y[:, None]
NAMES = np.array(["cat", "dog"], dtype=object)[Y]


def with_one(value):
    labels = NAMES.copy()
    labels[3] = value
    return labels


def pandas_with_missing():
    pandas = pytest.importorskip("pandas")
    return pandas.Series(with_one(pandas.NA), dtype="string")


FITS = {
    "RobustClassifier": lambda y: icda.RobustClassifier().fit(X, y),
    "ICDAClassifier": lambda y: icda.ICDAClassifier().fit(X, y),
    "partial_fit": lambda y: icda.ICDAClassifier().partial_fit(X, y, classes=["cat", "dog"]),
    "MetaICDAClassifier": lambda y: icda.MetaICDAClassifier().fit(X, y, X, NAMES),
    "audit": lambda y: icda.audit(X, y),
}
ODD = {"pandas.NA": pandas_with_missing, "None": lambda: with_one(None), "a number": lambda: with_one(7)}


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("odd", ODD)
def test_missing_and_mixed_labels_are_one_sentence(fit, odd):
    with pytest.raises(InputError, match=r"the labels y mix types"):
        FITS[fit](ODD[odd]())


def test_whole_texts_of_pandas_are_labels():
    pandas = pytest.importorskip("pandas")
    model = icda.RobustClassifier().fit(X, pandas.Series(NAMES, dtype="string"))
    assert model.classes_.tolist() == ["cat", "dog"]


def test_more_folds_than_samples_are_refused_at_once():
    with pytest.raises(InputError, match=r"40 samples cannot be cut into 1000000 folds"):
        icda.audit(X, Y, folds=10**6)
