"""A prior that `fit` is given: attributes, or log probabilities per sample."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from icda import ICDAClassifier

N = 300


def data():
    generator = np.random.default_rng(0)
    codes = np.arange(N) % 3
    codes[:60] = 0
    attributes = np.where(generator.random(N) < 0.85, codes, (codes + 1) % 3)
    X = generator.normal(size=(N, 6))
    X[:, 0] += 1.2 * codes
    X[:, 1] += 2.0 * attributes
    return X, np.array(["fox", "hare", "owl"])[codes], np.array(["field", "night", "wood"])[attributes]


X, y, PLACE = data()


@pytest.mark.parametrize("strength", ["angle", "cross_fitted"])
@pytest.mark.parametrize("loss", ["ce", "la", "isda", "icda"])
def test_attributes_are_groups_balanced_through_the_prior(loss, strength):
    weights = np.random.default_rng(1).integers(0, 3, N)
    given = ICDAClassifier(loss, strength=strength).fit(X, y, weights, attributes=PLACE)
    balanced = ICDAClassifier(loss, strength=strength, balance="group", through="prior").fit(
        X, y, weights, groups=PLACE
    )
    np.testing.assert_array_equal(given.coef_, balanced.coef_)
    np.testing.assert_array_equal(given.attributes_, balanced.attributes_)


@pytest.mark.parametrize("loss", ["ce", "icda"])
def test_log_probabilities_of_the_attributes_are_the_attributes(loss):
    log_prior = np.empty((N, 3))
    for place in np.unique(PLACE):
        counts = np.array([((y == label) & (place == PLACE)).sum() for label in np.unique(y)])
        shares = np.array([(y == label).mean() for label in np.unique(y)])
        log_prior[place == PLACE] = np.log(counts + 0.5 * 3 * shares)
    found = ICDAClassifier(loss, tol=1e-7, max_iter=1000).fit(X, y, log_prior=log_prior)
    wanted = ICDAClassifier(loss, tol=1e-7, max_iter=1000).fit(X, y, attributes=PLACE)
    np.testing.assert_allclose(found.coef_, wanted.coef_, atol=1e-4)
    assert not hasattr(found, "attributes_")
    assert np.abs(wanted.coef_ - ICDAClassifier(loss).fit(X, y).coef_).max() > 0.05, "the prior must matter here"


def test_an_even_prior_is_cross_entropy():
    found = ICDAClassifier("la").fit(X, y, log_prior=np.ones((N, 3)))
    np.testing.assert_allclose(found.coef_, ICDAClassifier("ce").fit(X, y).coef_, atol=1e-4)


def test_samples_of_weight_zero_take_their_prior_with_them():
    used = np.random.default_rng(2).random(N) < 0.7
    log_prior = np.random.default_rng(3).normal(size=(N, 3))
    model = ICDAClassifier("la")
    found = clone(model).fit(X, y, used.astype(float), log_prior=log_prior)
    np.testing.assert_array_equal(found.coef_, clone(model).fit(X[used], y[used], log_prior=log_prior[used]).coef_)


def test_priors_are_routed_through_a_pipeline():
    log_prior = np.random.default_rng(3).normal(size=(N, 3))
    with sklearn.config_context(enable_metadata_routing=True):
        asking = ICDAClassifier("ce").set_fit_request(log_prior=True, attributes=True)
        pipeline = make_pipeline(StandardScaler(), asking).fit(X, y, log_prior=log_prior)
    direct = ICDAClassifier("ce").fit(StandardScaler().fit_transform(X), y, log_prior=log_prior)
    np.testing.assert_array_equal(pipeline[-1].coef_, direct.coef_)


@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        ({}, {"attributes": PLACE, "log_prior": np.zeros((N, 3))}, "both attributes and log_prior"),
        ({}, {"attributes": PLACE[:-1]}, r"attributes must have one entry per sample, expected shape \(300,\)"),
        ({}, {"log_prior": np.zeros((N, 2))}, r"expected shape \(300, 3\), got \(300, 2\)"),
        ({}, {"log_prior": np.full((N, 3), -np.inf)}, "log_prior holds NaN or infinite"),
        ({"balance": "class"}, {"attributes": PLACE}, "go without balance='class'"),
    ],
)
def test_wrong_priors_are_named(settings, given, message):
    with pytest.raises(ValueError, match=message):
        ICDAClassifier(**settings).fit(X, y, **given)
