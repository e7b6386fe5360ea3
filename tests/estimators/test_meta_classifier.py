import pickle

import numpy as np
import pytest
from sklearn.base import clone

from icda import MetaICDAClassifier
from support import shortcut_data


def data(size=300, seed=0, agreement=0.95):
    features, targets, attribute = shortcut_data(size, agreement, 6, (1, 1.2), (1, 2.5), seed)
    return features, np.array(["cat", "dog"])[targets], attribute


X, y, _ = data()
X_META, Y_META, PLACE = data(80, 1, 0.5)


def test_metadata_lift_the_worst_group():
    test_features, test_targets, test_place = data(4000, 7, 0.5)

    def worst(model):
        hits = model.predict(test_features) == test_targets
        cells = [(t, p) for t in ("cat", "dog") for p in (0, 1)]
        return min(float(hits[(test_targets == t) & (test_place == p)].mean()) for t, p in cells)

    nothing = MetaICDAClassifier(C=0.1, steps=0, use_metadata=False, prior="class").fit(X, y, X_META, Y_META, PLACE)
    learned = MetaICDAClassifier(C=0.1).fit(X, y, X_META, Y_META, PLACE)
    assert worst(learned) > worst(nothing) + 0.1


def test_clone_and_pickle_keep_everything():
    model = MetaICDAClassifier(C=0.3, steps=2, random_state=4)
    assert clone(model).get_params() == model.get_params()
    fitted = model.fit(X, y, X_META, Y_META)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "risda"}, "loss must be one of"),
        ({"prior": "group"}, "prior must be"),
        ({"strengths_as": "both"}, "strengths_as must be"),
        ({"strength_output": "relu"}, "strength_output must be one of sigmoid, tanh, linear"),
        ({"strength_output": "tanh", "strengths_as": "weights"}, "needs strengths that are positive"),
        ({"beta": "large"}, 'beta is a number or "auto"'),
        ({"C": 0}, "to be positive"),
        ({"folds": 1}, "folds must be at least 2"),
    ],
)
def test_wrong_settings_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        MetaICDAClassifier(**change).fit(X, y, X_META, Y_META)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ((X_META[:, :3], Y_META, None), "X_meta has 3 features"),
        ((X_META, np.full(80, "cat"), None), "no sample of class dog"),
        ((X_META, np.full(80, "cow"), None), "classes that y does not: cow"),
        ((X_META, Y_META[:-1], None), "inconsistent numbers of samples"),
        ((np.where(X_META > 3, np.nan, X_META), Y_META, None), "NaN"),
        ((X_META[:3], Y_META[:3], None), "needs at least folds=2"),
        (
            (X_META, Y_META, PLACE[:-1]),
            r"groups_meta must have one entry per sample, expected shape \(80,\), got \(79,\)",
        ),
    ],
)
def test_wrong_metadata_is_named(metadata, message):
    features, targets, groups = metadata
    with pytest.raises(ValueError, match=message):
        MetaICDAClassifier(steps=1).fit(X, y, features, targets, groups)


def test_groups_of_the_metadata_are_read_off_the_training_samples():
    _, _, place = data()
    model = MetaICDAClassifier(C=0.1, steps=1).fit(X, y, X_META, Y_META, np.array(["land", "water"])[PLACE])
    assert (model.attributes_ == place).mean() > 0.95
    assert 0 < model.metadata_share_ < 1
    assert 0 <= model.metadata_score_ <= 1
    assert not hasattr(MetaICDAClassifier(C=0.1, steps=1).fit(X, y, X_META, Y_META), "attributes_")


def test_given_attributes_are_used_in_place_of_those_read_off_the_metadata():
    """What is read off the training data is known: given, it must lead to the same fit."""
    model = MetaICDAClassifier(C=0.1, steps=2)
    read = clone(model).fit(X, y, X_META, Y_META, PLACE)
    given = clone(model).fit(X, y, X_META, Y_META, PLACE, attributes=np.array(["sea", "wood"])[read.attributes_])
    np.testing.assert_array_equal(given.coef_, read.coef_)
    np.testing.assert_array_equal(given.attributes_, read.attributes_)


def test_a_prior_that_the_settings_do_not_read_is_refused():
    with pytest.raises(ValueError, match='prior="class" reads the class counts only'):
        MetaICDAClassifier(prior="class").fit(X, y, X_META, Y_META, attributes=np.zeros(300))
    with pytest.raises(ValueError, match=r"expected shape \(300, 2\), got \(300, 3\)"):
        MetaICDAClassifier().fit(X, y, X_META, Y_META, log_prior=np.zeros((300, 3)))


@pytest.mark.parametrize("strengths_as", ["margins", "weights"])
def test_a_prior_that_says_no_more_than_the_class_sizes_changes_nothing(strengths_as):
    """An attribute that all samples share, and log-probabilities that are the class shares, are the counts' own prior."""
    kept = np.r_[np.flatnonzero(y == "cat"), np.flatnonzero(y == "dog")[:30]]
    shares = np.log(np.tile([150 / 180, 30 / 180], (180, 1)))

    def fitted(prior, **given):
        model = MetaICDAClassifier(
            C=0.1, steps=2, loss="la", strengths_as=strengths_as, prior=prior, use_metadata=False
        )
        return model.fit(X[kept], y[kept], X_META, Y_META, **given).decision_function(X)

    counts = fitted("class")
    np.testing.assert_allclose(fitted("attribute", attributes=np.zeros(180, int)), counts, atol=2e-2)
    np.testing.assert_allclose(fitted("attribute", log_prior=shares), counts, atol=2e-2)


def test_samples_of_weight_zero_are_as_if_they_were_not_there():
    weights = np.ones(len(y))
    weights[::7] = 0
    kept = weights > 0
    attributes = np.arange(len(y)) % 2
    model = MetaICDAClassifier(C=0.1, steps=2)
    whole = model.fit(X, y, X_META, Y_META, sample_weight=weights, attributes=attributes).coef_
    part = clone(model).fit(X[kept], y[kept], X_META, Y_META, attributes=attributes[kept]).coef_
    np.testing.assert_allclose(whole, part, atol=1e-10)
    with pytest.raises(ValueError, match="a class has no sample with a positive sample_weight"):
        model.fit(X, y, X_META, Y_META, sample_weight=(y == "cat").astype(float), attributes=attributes)


def test_beta_may_be_chosen_on_metadata():
    settings = {"C": 0.1, "steps": 3, "strength_output": "tanh"}
    chosen = MetaICDAClassifier(beta="auto", **settings).fit(X, y, X_META, Y_META)
    each = [MetaICDAClassifier(beta=beta, **settings).fit(X, y, X_META, Y_META) for beta in (0.1, 1.0, 5.0)]
    scores = [model.metadata_score_ for model in each]
    best = each[scores.index(max(scores))]
    assert (chosen.beta_, chosen.metadata_score_) == (best.beta_, best.metadata_score_)
    np.testing.assert_array_equal(chosen.coef_, best.coef_)
    np.testing.assert_array_equal(chosen.strengths_, best.strengths_)


def test_signed_strengths_withdraw_wrong_labels_as_those_of_the_sigmoid_cannot():
    """Two fifths of the labels of one class are wrong, more than chance would even out."""
    generator = np.random.default_rng(0)
    truth = np.arange(400) % 2
    features = generator.normal(size=(400, 4)) + 2.5 * np.outer(2 * truth - 1, [1, 0, 0, 0])
    wrong = (truth == 1) & (generator.random(400) < 0.4)
    labels = np.where(wrong, 0, truth)
    trusted, meta = features[:40] + generator.normal(size=(40, 4)) / 4, truth[:40]
    means = {}
    for output, beta in (("sigmoid", 0.1), ("tanh", 5.0), ("linear", 3.0)):
        model = MetaICDAClassifier(C=0.1, strength_output=output, beta=beta, use_metadata=False, class_margins=False)
        model.fit(features[40:], labels[40:], trusted, meta)
        chosen = (labels[40:] == 0, wrong[40:])
        means[output] = model.strengths_[chosen[1]].mean() - model.strengths_[chosen[0] & ~chosen[1]].mean()
        if output != "sigmoid":
            for label in (0, 1):
                assert abs(model.strengths_[labels[40:] == label].mean()) < 1e-5
    assert means["tanh"] < -0.1
    assert means["linear"] < -0.1
