from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import icda
from icda.integrations.classifier import ICDAClassifier


@parametrize_with_checks([ICDAClassifier(), ICDAClassifier("ce"), ICDAClassifier("risda")])
def test_scikit_learns_own_checks_pass(estimator, check) -> None:  # type: ignore[no-untyped-def]
    check(estimator)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    data = load_digits()
    return data.data / 16, data.target


def test_the_public_name_is_the_class() -> None:
    assert icda.ICDAClassifier is ICDAClassifier


def test_cross_entropy_agrees_with_logistic_regression(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    mine = ICDAClassifier("ce", C=0.5, tol=1e-6, max_iter=1000).fit(X, y)
    reference = LogisticRegression(C=0.5, tol=1e-8, max_iter=2000).fit(X, y)
    np.testing.assert_allclose(mine.predict_proba(X), reference.predict_proba(X), atol=2e-3)


@pytest.mark.parametrize("loss", ["ce", "la", "isda", "risda", "icda"])
def test_every_loss_learns_string_labels(loss: str, digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    names = np.array(["zero", "one", "two", "three"])[y[y < 4]]
    model = ICDAClassifier(loss, C=1.0).fit(X[y < 4], names)
    assert model.score(X[y < 4], names) > 0.97
    assert set(model.classes_) == {"zero", "one", "two", "three"}


def test_probabilities_are_those_of_the_plain_head(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    model = ICDAClassifier().fit(X, y)
    logits = X @ model.coef_.T + model.intercept_
    expected = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(model.predict_proba(X), expected / expected.sum(1, keepdims=True), rtol=1e-6)


def test_pipelines_grid_search_cloning_and_pickling_work(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    pipeline = make_pipeline(StandardScaler(), ICDAClassifier(max_iter=50, tol=1e-2))
    search = GridSearchCV(pipeline, {"icdaclassifier__lambda0": [0.1, 0.5]}, cv=2).fit(X[:400], y[:400])
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    assert np.array_equal(again.predict(X), search.best_estimator_.predict(X))
    assert clone(ICDAClassifier(beta=0.3)).beta == 0.3


def test_group_balance_gives_every_group_the_same_weight() -> None:
    generator = np.random.default_rng(0)
    y = np.repeat([0, 1], 200)
    attribute = np.where(generator.random(400) < 0.95, y, 1 - y)
    X = generator.normal(size=(400, 4))
    X[:, 0] += 1.5 * (2 * y - 1)
    X[:, 1] += 3 * (2 * attribute - 1)
    plain = ICDAClassifier("ce").fit(X, y)
    balanced = ICDAClassifier("ce", balance="group").fit(X, y, groups=attribute)
    guessed = ICDAClassifier("ce", balance="contrast").fit(X, y)
    share = [
        abs(m.coef_[1, 1] - m.coef_[0, 1]) / abs(m.coef_[1, 0] - m.coef_[0, 0]) for m in (plain, balanced, guessed)
    ]
    assert share[1] < share[0]
    assert share[2] < share[0]
    assert guessed.attributes_.shape == (400,)


@pytest.mark.parametrize(
    ("settings", "fit", "message"),
    [
        ({"loss": "icd"}, {}, "loss must be one of"),
        ({"balance": "attribute"}, {}, "balance must be"),
        ({"balance": "group"}, {}, r"needs groups: fit\(X, y, groups=...\)"),
        ({"C": 0}, {}, "C must be positive"),
        ({"balance": "group"}, {"groups": np.zeros(3)}, "one entry a sample"),
    ],
)
def test_wrong_settings_are_named(settings: dict, fit: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ICDAClassifier(**settings).fit(np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2, **fit)


def test_a_fit_cut_short_warns(digits: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = digits
    with pytest.warns(ConvergenceWarning, match="stopped at max_iter=2"):
        ICDAClassifier("ce", max_iter=2).fit(X, y)
