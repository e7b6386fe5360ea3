"""scikit-learn manners: metadata routing, search, weights, and the usual errors."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from icda.estimators.classifier import ICDAClassifier

LOSSES = ("ce", "la", "isda", "risda", "icda")


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture(scope="module")
def biased():
    """Features with a loud attribute that goes with the class in 9 of 10 samples, string labels, attributes."""
    generator = np.random.default_rng(0)
    codes = np.arange(400) % 2
    attributes = np.where(generator.random(400) < 0.9, codes, 1 - codes)
    X = generator.normal(size=(400, 5))
    X[:, 0] += 1.5 * codes
    X[:, 1] += 4.0 * attributes
    return X, np.array(["land", "water"])[codes], np.array(["forest", "sea"])[attributes]


def test_groups_and_weights_arrive_through_a_pipeline(routing, biased):
    X, y, groups = biased
    weights = np.random.default_rng(1).random(400)
    model = ICDAClassifier("ce", balance="group")
    direct = clone(model).fit(StandardScaler().fit_transform(X), y, sample_weight=weights, groups=groups)
    asking = clone(model).set_fit_request(sample_weight=True, groups=True)
    pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), asking)
    pipeline.fit(X, y, sample_weight=weights, groups=groups)
    np.testing.assert_array_equal(pipeline[-1].coef_, direct.coef_)
    unbalanced = clone(model).set_params(balance=None).fit(StandardScaler().fit_transform(X), y, sample_weight=weights)
    assert np.abs(unbalanced.coef_ - direct.coef_).max() > 0.1, "the groups must matter here"


def test_groups_arrive_in_every_fold_of_a_search(routing, biased):
    X, y, groups = biased
    model = ICDAClassifier("ce", balance="group").set_fit_request(sample_weight=False, groups=True)
    folds = StratifiedKFold(3)
    search = GridSearchCV(model, {"C": [0.01, 1.0]}, cv=folds).fit(X, y, groups=groups)
    wanted = ICDAClassifier("ce", balance="group", **search.best_params_).fit(X, y, groups=groups)
    np.testing.assert_array_equal(search.best_estimator_.coef_, wanted.coef_)
    fits = cross_validate(model, X, y, cv=folds, params={"groups": groups}, return_estimator=True)["estimator"]
    for (train, _), fitted in zip(folds.split(X, y), fits, strict=True):
        alone = ICDAClassifier("ce", balance="group").fit(X[train], y[train], groups=groups[train])
        np.testing.assert_array_equal(fitted.coef_, alone.coef_)


def test_groups_that_nobody_asked_for_are_an_error(routing, biased):
    X, y, groups = biased
    with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="are passed but are not explicitly set"):
        make_pipeline(StandardScaler(), ICDAClassifier()).fit(X, y, groups=groups)


def test_weights_can_be_routed_to_partial_fit():
    with sklearn.config_context(enable_metadata_routing=True):
        asked = ICDAClassifier().set_partial_fit_request(sample_weight=True, classes=True)
        assert asked.get_metadata_routing().partial_fit.requests["sample_weight"] is True


def test_a_search_over_losses_and_strengths_finds_a_model(biased):
    X, y, _ = biased
    pipeline = make_pipeline(StandardScaler(), ICDAClassifier())
    grid = {"icdaclassifier__loss": list(LOSSES), "icdaclassifier__C": [0.01, 1.0]}
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(X, y)
    assert len(search.cv_results_["params"]) == 10
    assert set(search.classes_) == {"land", "water"}
    assert search.score(X, y) > 0.85
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict_proba(X), search.predict_proba(X))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_weight_of_two_is_a_sample_twice(loss, biased):
    X, y, _ = biased
    repeats = np.random.default_rng(2).integers(0, 4, len(y))
    rows = np.repeat(np.arange(len(y)), repeats)
    model = ICDAClassifier(loss, C=0.05, tol=1e-9, max_iter=2000)
    weighted = clone(model).fit(X, y, sample_weight=repeats)
    repeated = clone(model).fit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=2e-5)
    np.testing.assert_allclose(weighted.intercept_, repeated.intercept_, atol=2e-5)


@pytest.mark.parametrize("classes", [("no", "yes"), (False, True), (3, -7), (0.0, 1.0)])
def test_classes_keep_their_type(classes, biased):
    X, y, _ = biased
    labels = np.array(classes)[(y == "water").astype(int)]
    model = ICDAClassifier("ce").fit(X, labels)
    assert model.classes_.dtype == labels.dtype
    assert model.predict(X).dtype == labels.dtype
    assert model.score(X, labels) > 0.85


def test_a_constant_feature_gets_no_weight(biased):
    X, y, _ = biased
    for loss in LOSSES:
        model = ICDAClassifier(loss).fit(np.hstack([X, np.zeros((len(X), 1))]), y)
        assert np.isfinite(model.coef_).all()
        assert not model.coef_[:, -1].any()
    nothing = ICDAClassifier("ce").fit(np.ones((len(y), 3)), np.where(np.arange(len(y)) < 300, "often", "rare"))
    np.testing.assert_allclose(nothing.predict_proba(np.ones((1, 3))), [[0.75, 0.25]], atol=1e-3)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), "sample_weight.shape == "),
        (np.full(400, -1.0), "Negative values in data passed to `sample_weight`"),
        (np.full(400, np.nan), "Input sample_weight contains NaN"),
    ],
)
def test_wrong_weights_are_named(weights, message, biased):
    X, y, _ = biased
    with pytest.raises(ValueError, match=message):
        ICDAClassifier().fit(X, y, sample_weight=weights)
