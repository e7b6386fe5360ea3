"""Habits of scikit-learn's users: unscaled features, class weights, sparse matrices, log probabilities, metadata."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import icda
from icda import ICDAClassifier, MetaICDAClassifier, RobustClassifier
from icda.errors import InputError, InputTypeError

X, Y = load_digits(return_X_y=True)
X = X[:600] / 16
Y = Y[:600]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("loss", ["icda", "ce"])
def test_features_of_any_size_are_learned_alike(loss, dtype):
    """The optimum for features times s at C is that for the features at C s^2."""
    for power in (20, 40):
        size = 2.0**power
        model = ICDAClassifier(loss, C=1.0 / size**2).fit((X[:400] * size).astype(dtype), Y[:400])
        plain = ICDAClassifier(loss, C=1.0).fit(X[:400].astype(dtype), Y[:400])
        np.testing.assert_allclose(model.coef_ * size, plain.coef_, rtol=1e-6)
        assert model.score((X[400:] * size).astype(dtype), Y[400:]) == plain.score(X[400:].astype(dtype), Y[400:])


def test_metadata_share_the_scale_of_the_solver():
    size = 2.0**30
    given = (Y[200:400], X[:200] * size, Y[:200])
    model = MetaICDAClassifier(C=1 / size**2, steps=1).fit(X[200:400] * size, *given)
    plain = MetaICDAClassifier(C=1.0, steps=1).fit(X[200:400], Y[200:400], X[:200], Y[:200])
    np.testing.assert_allclose(model.coef_ * size, plain.coef_, rtol=1e-6)


@pytest.mark.parametrize("weights", ["balanced", {c: 1.0 + c for c in range(10)}])
def test_class_weight_is_that_of_logistic_regression(weights):
    chosen = np.concatenate([np.flatnonzero(c == Y)[: 5 + 4 * c] for c in range(10)])
    ours = ICDAClassifier("ce", class_weight=weights, C=0.5, tol=1e-8, max_iter=2000).fit(X[chosen], Y[chosen])
    theirs = LogisticRegression(class_weight=weights, C=0.5, tol=1e-10, max_iter=5000).fit(X[chosen], Y[chosen])
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)


def test_class_weight_is_the_same_as_sample_weight():
    weights = {c: 1.0 + c for c in range(10)}
    by_class = MetaICDAClassifier(class_weight=weights, steps=1).fit(X[200:], Y[200:], X[:200], Y[:200])
    each = 1.0 + Y[200:]
    by_sample = MetaICDAClassifier(steps=1).fit(X[200:], Y[200:], X[:200], Y[:200], sample_weight=each)
    np.testing.assert_array_equal(by_class.coef_, by_sample.coef_)


def test_partial_fit_refuses_class_weight():
    with pytest.raises(InputError, match="partial_fit does not know class_weight"):
        ICDAClassifier(class_weight="balanced").partial_fit(X, Y, classes=np.arange(10))


@pytest.mark.parametrize(
    "call",
    [
        lambda sparse: ICDAClassifier().fit(sparse, Y),
        lambda sparse: ICDAClassifier().partial_fit(sparse, Y, classes=np.arange(10)),
        lambda sparse: ICDAClassifier("ce").fit(X, Y).predict(sparse),
        lambda sparse: MetaICDAClassifier().fit(sparse, Y, X, Y),
        lambda sparse: MetaICDAClassifier().fit(X, Y, sparse, Y),
        lambda sparse: RobustClassifier().fit(sparse, Y),
        lambda sparse: icda.audit(sparse, Y),
    ],
)
def test_a_sparse_matrix_is_refused_with_the_way_out(call):
    with pytest.raises(InputTypeError, match=r"dense features.*toarray\(\).*TruncatedSVD"):
        call(csr_matrix(X))


def test_log_probabilities_are_exact_where_the_logarithm_of_probabilities_is_not():
    model = ICDAClassifier("ce").fit(X, Y)
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(model.predict_proba(X)), rtol=1e-9)
    far = model.predict_log_proba(1e4 * X)
    assert np.isfinite(far).all()
    assert (model.predict_proba(1e4 * X) == 0).any()


@pytest.mark.parametrize("through", ["prior", "statistics"])
def test_through_without_a_balance_is_refused(through):
    with pytest.raises(InputError, match="balance is None: set balance, or leave it out"):
        ICDAClassifier(through=through).fit(X, Y)


@pytest.mark.parametrize("change", [lambda x: 100 * x, lambda x: x / 100, lambda x: x + 100])
def test_metadata_of_another_scale_are_warned_of(change):
    with pytest.warns(UserWarning, match=r"X_meta has another scale than X.*transform_input"):
        MetaICDAClassifier(steps=0).fit(X[200:], Y[200:], change(X[:200]), Y[:200])


def test_metadata_of_the_same_scale_are_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        MetaICDAClassifier(steps=0, C=0.1, max_iter=1000).fit(X[200:], Y[200:], 3 * X[:200] + 1, Y[:200])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"C": "1"}, "expects C as a number, got '1'"),
        ({"lambda0": None}, "expects lambda0 as a number, got None"),
        ({"beta": float("nan")}, "beta"),
        ({"max_iter": 2.5}, "expects max_iter as a whole number, got 2.5"),
    ],
)
@pytest.mark.parametrize("kind", [ICDAClassifier, MetaICDAClassifier])
def test_a_setting_of_another_kind_is_refused(kind, settings, message):
    given = () if kind is ICDAClassifier else (X, Y)
    with pytest.raises((InputError, InputTypeError), match=message):
        kind(**settings).fit(X, Y, *given)
