import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from icda.estimators.classifier import ICDAClassifier


@parametrize_with_checks([ICDAClassifier(), ICDAClassifier("ce"), ICDAClassifier("risda")])
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    return data.data / 16, data.target


def test_cross_entropy_agrees_with_logistic_regression(digits):
    X, y = digits
    mine = ICDAClassifier("ce", C=0.5, tol=1e-6, max_iter=1000).fit(X, y)
    reference = LogisticRegression(C=0.5, tol=1e-8, max_iter=2000).fit(X, y)
    np.testing.assert_allclose(mine.predict_proba(X), reference.predict_proba(X), atol=2e-3)


def test_probabilities_are_those_of_the_plain_head(digits):
    X, y = digits
    model = ICDAClassifier().fit(X, y)
    logits = X @ model.coef_.T + model.intercept_
    expected = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(model.predict_proba(X), expected / expected.sum(1, keepdims=True), rtol=1e-6)


def test_group_balance_gives_every_group_the_same_weight():
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


def weighted_samples():
    """Features, labels, groups of which one pair with a class is empty, and whole weights."""
    generator = np.random.default_rng(0)
    y = np.arange(240) % 3
    groups = np.where(y == 2, 0, generator.random(240) < 0.2).astype(int)
    X = generator.normal(size=(240, 4))
    X[:, 0] += y
    return X, y, groups, np.where(generator.random(240) < 0.2 + 0.2 * y, 5, 1)


@pytest.mark.parametrize("balance", ["class", "group"])
@pytest.mark.parametrize("through", ["weights", "statistics", "prior"])
@pytest.mark.parametrize("loss", ["ce", "la", "isda", "icda"])
def test_under_a_balance_a_weight_of_five_is_a_row_five_times(loss, through, balance):
    X, y, groups, times = weighted_samples()
    rows = np.repeat(np.arange(len(y)), times)
    model = ICDAClassifier(loss, balance=balance, through=through, tol=1e-8, max_iter=1000)
    weighted = clone(model).fit(X, y, sample_weight=times, groups=groups)
    repeated = clone(model).fit(X[rows], y[rows], groups=groups[rows])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-4)
    np.testing.assert_allclose(
        weighted.intercept_ - weighted.intercept_.mean(), repeated.intercept_ - repeated.intercept_.mean(), atol=1e-4
    )


@pytest.mark.parametrize("balance", ["class", "group", "contrast", "strength"])
def test_weights_of_one_change_no_bit(balance):
    X, y, groups, _ = weighted_samples()
    plain, weighted = (
        ICDAClassifier(balance=balance).fit(X, y, sample_weight=weights, groups=groups)
        for weights in (None, np.ones(len(y)))
    )
    assert np.array_equal(plain.coef_, weighted.coef_)


def test_what_an_earlier_fit_balanced_is_forgotten():
    X, y, groups, _ = weighted_samples()
    model = ICDAClassifier("ce", balance="group").fit(X, y, groups=groups)
    assert np.array_equal(model.attributes_, groups)
    for balance in (None, "strength"):
        assert not hasattr(model.set_params(balance=balance).fit(X, y), "attributes_")


@pytest.mark.parametrize(
    ("settings", "fit", "message"),
    [
        ({"loss": "icd"}, {}, "loss must be one of"),
        ({"balance": "attribute"}, {}, "balance must be"),
        ({"balance": "group"}, {}, r"needs groups: fit\(X, y, groups=...\)"),
        ({"balance": "strength", "through": "prior"}, {}, "has no groups to balance through='prior'"),
        ({"balance": "strength", "through": "statistics"}, {}, "has no groups to balance through='statistics'"),
        ({"C": 0}, {}, "C to be positive"),
        ({"balance": "group"}, {"groups": np.zeros(3)}, "one entry per sample"),
    ],
)
def test_wrong_settings_are_named(settings, fit, message):
    with pytest.raises(ValueError, match=message):
        ICDAClassifier(**settings).fit(np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2, **fit)


def test_groups_of_some_samples_are_read_off_the_others():
    generator = np.random.default_rng(0)
    y = np.arange(600) % 2
    place = np.where(generator.random(600) < 0.1, 1 - y, y)
    X = generator.normal(size=(600, 12)) * 50
    X[:, 0] += 60 * y
    X[:, 1:3] += 250 * place[:, None]
    groups = np.where(generator.random(600) < 0.15, place, np.nan)
    known = ICDAClassifier(balance="group").fit(X, y, groups=place)
    some = ICDAClassifier(balance="group").fit(X, y, groups=groups)
    assert (some.attributes_ == known.attributes_).mean() > 0.98
    with pytest.raises(ValueError, match="one class only"):
        ICDAClassifier(balance="group").fit(X, y, groups=np.where(generator.random(600) < 0.1, y, np.nan))
