"""RobustClassifier: audits, treats, says what it did, and behaves as scikit-learn expects."""

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from icda import RobustClassifier
from icda.heads.blocks import Scaling


@parametrize_with_checks([RobustClassifier()])
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


def birds(samples, minority, seed):
    """A weak signal of the class, a strong one of a place, and the place, which goes against a minority."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 2, samples)
    place = np.where(generator.random(samples) < minority, 1 - y, y)
    X = generator.normal(size=(samples, 40))
    X[:, :10] += 0.35 * (2 * y[:, None] - 1)
    X[:, 10:16] += 2.0 * (2 * place[:, None] - 1)
    return 3 * X + 5, y, place


@pytest.fixture(scope="module")
def shortcut():
    return birds(1600, 0.05, 0), birds(3000, 0.5, 1)


def worst_group(model, data):
    X, y, place = data
    right = model.predict(X) == y
    return float(min(right[(y == a) & (place == b)].mean() for a in (0, 1) for b in (0, 1)))


def test_a_shortcut_is_named_treated_and_the_worst_group_comes_near_that_of_true_groups(shortcut):
    (X, y, place), test = shortcut
    plain = RobustClassifier().fit(X, y, groups=np.zeros(len(y)))  # one group: logit adjustment
    given = RobustClassifier().fit(X, y, groups=place)
    guessed = RobustClassifier().fit(X, y)
    assert guessed.audit_.verdicts["shortcut"].answer == "yes"
    assert guessed.treatment_.name == "shortcut_prior"
    assert (given.treatment_.name, given.audit_) == ("group_prior", None)
    gain = worst_group(given, test) - worst_group(plain, test)
    assert gain > 0.3
    assert worst_group(guessed, test) - worst_group(plain, test) > 0.8 * gain


def test_the_guess_never_uses_the_label_of_the_sample_itself(shortcut):
    (X, y, place), _ = shortcut
    answers = RobustClassifier().fit(X, y).treatment_.attributes.numpy()
    against = place != y
    assert (answers == place).mean() > 0.97
    assert (answers[against] == place[against]).mean() > 0.9


def test_metadata_with_groups_serve_as_groups_do(shortcut):
    (X, y, _), test = shortcut
    X_meta, y_meta, groups_meta = birds(300, 0.5, 7)
    model = RobustClassifier().fit(X, y, X_meta=X_meta, y_meta=y_meta, groups_meta=groups_meta)
    assert model.treatment_.name == "group_prior"
    assert worst_group(model, test) > 0.6


def test_the_expected_effect_is_told_and_comes_true(shortcut):
    (X, y, _), test = shortcut
    model = RobustClassifier().fit(X, y)
    effect = model.treatment_.effect
    assert effect.suspected_after > effect.suspected_before + 0.2
    assert f"{effect.suspected} suspected samples" in str(model.treatment_)
    assert worst_group(model, test) == pytest.approx(effect.suspected_after, abs=0.2)


def test_weights_scale_and_string_labels_change_nothing():
    X, y, _ = birds(300, 0.5, 3)
    first = RobustClassifier().fit(X, y)
    second = RobustClassifier().fit(X, np.array(["cat", "dog"])[y], sample_weight=np.full(len(y), 7.0))
    # A weight of 7 is seven samples, before which half a sample of smoothing in the prior is less.
    np.testing.assert_allclose(first.coef_, second.coef_, atol=1e-3)
    assert set(second.predict(X)) <= {"cat", "dog"}


def test_features_as_given_and_standardised_give_the_same_logits():
    X, y, _ = birds(400, 0.5, 4)
    scaled = (X - X.mean(0)) / X.std(0)
    first, second = RobustClassifier().fit(X, y), RobustClassifier().fit(scaled, y)
    np.testing.assert_allclose(first.decision_function(X), second.decision_function(scaled), atol=1e-3)


def test_moments_with_weights_are_those_of_repeated_rows():
    X = np.random.default_rng(0).normal(size=(5, 2))
    weights = np.array([1.0, 2.0, 0.0, 3.0, 1.0])
    scaling = Scaling.of_rows(X, weights)
    repeated = np.repeat(X, weights.astype(int), axis=0)
    np.testing.assert_allclose(scaling.mean, repeated.mean(0))
    np.testing.assert_allclose(scaling.scale, repeated.std(0))


def test_a_page_says_what_was_found_and_done(shortcut, tmp_path):
    (X, y, _), _ = shortcut
    page = RobustClassifier().fit(X, y).report(tmp_path / "deep" / "page.html").read_text()
    assert "told which class the shortcut suggests" in page
    assert "suspected samples" in page
    assert page.count("<script") == 1  # the page's own


@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        ({"loss": "isda"}, {}, "loss must be one of la, icda, got 'isda'"),
        ({"C": 0.0}, {}, "C to be positive, got 0.0"),
        ({}, {"groups": [0, 1]}, "groups must have one entry per sample, expected shape"),
        ({}, {"X_meta": np.zeros((4, 40))}, "metadata need X_meta, y_meta and groups_meta"),
        (
            {},
            {"X_meta": np.zeros((4, 3)), "y_meta": [0, 1, 0, 1], "groups_meta": [0, 0, 1, 1]},
            "X_meta has 3 features, but RobustClassifier is expecting 40",
        ),
        (
            {},
            {"X_meta": np.zeros((4, 40)), "y_meta": [0, 1, 0, 9], "groups_meta": [0, 0, 1, 1]},
            "y_meta holds classes that y does not",
        ),
    ],
)
def test_wrong_settings_and_input_are_refused(settings, given, message):
    X, y, _ = birds(100, 0.5, 0)
    with pytest.raises(ValueError, match=message):
        clone(RobustClassifier(**settings)).fit(X, y, **given)


def test_an_assessment_of_samples_that_weigh_nothing_is_refused():
    X, y, _ = birds(100, 0.5, 0)
    found, weights = RobustClassifier().fit(X, y).audit_, np.ones(len(y))
    RobustClassifier().fit(X, y, weights, assessment=found)
    weights[3] = 0
    with pytest.raises(ValueError, match="weigh nothing"):
        RobustClassifier().fit(X, y, weights, assessment=found)


def test_groups_made_of_class_and_attribute_serve_too(shortcut):
    (X, y, place), test = shortcut
    plain = RobustClassifier().fit(X, y, groups=np.zeros(len(y)))
    given = RobustClassifier().fit(X, y, groups=2 * y + place)
    assert given.treatment_.name == "group_weights"
    assert worst_group(given, test) - worst_group(plain, test) > 0.3


def answered(place, number, missing=None):
    """The place of every so-many-th sample, and nothing of the others."""
    groups = np.full(len(place), missing, dtype=object)
    groups[:: len(place) // number] = place[:: len(place) // number]
    return groups


@pytest.mark.parametrize("missing", [None, float("nan"), pandas.NA])
def test_groups_of_some_samples_serve_nearly_as_well_as_those_of_all(shortcut, missing):
    (X, y, place), test = shortcut
    plain = RobustClassifier().fit(X, y, groups=np.zeros(len(y)))
    whole = RobustClassifier().fit(X, y, groups=place)
    some = RobustClassifier().fit(X, y, groups=answered(place, 48, missing))
    gain = worst_group(whole, test) - worst_group(plain, test)
    assert some.treatment_.name == "group_prior"
    assert f"known for {(answered(place, 48) != None).sum()} of 1600" in str(some.treatment_)  # noqa: E711
    assert worst_group(some, test) - worst_group(plain, test) > 0.9 * gain


def test_a_series_with_holes_is_read_as_an_array_with_holes(shortcut):
    (X, y, place), _ = shortcut
    groups = answered(np.where(place == 1, "sea", "land"), 48)
    wanted = RobustClassifier().fit(X, y, groups=groups)
    for given in (pandas.Series(groups), pandas.Series(groups).astype("string"), list(groups)):
        np.testing.assert_array_equal(RobustClassifier().fit(X, y, groups=given).coef_, wanted.coef_)
    numbers = answered(place.astype(float), 48, np.nan).astype(float)
    np.testing.assert_array_equal(RobustClassifier().fit(X, y, groups=numbers).coef_, wanted.coef_)


def test_wrong_answers_cost_little(shortcut):
    (X, y, place), test = shortcut
    groups = answered(place, 48)
    known = np.flatnonzero(groups != None)  # noqa: E711
    wrong = groups.copy()
    wrong[known[::10]] = 1 - wrong[known[::10]].astype(int)
    right, slipped = (RobustClassifier().fit(X, y, groups=given) for given in (groups, wrong))
    assert worst_group(slipped, test) > worst_group(right, test) - 0.05


def test_groups_made_of_class_and_attribute_may_be_known_in_part(shortcut):
    (X, y, place), test = shortcut
    plain = RobustClassifier().fit(X, y, groups=np.zeros(len(y)))
    some = RobustClassifier().fit(X, y, groups=answered(2 * y + place, 96))
    assert some.treatment_.name == "group_weights"
    assert worst_group(some, test) - worst_group(plain, test) > 0.25


def test_an_attribute_that_does_not_matter_costs_nothing(shortcut):
    (X, y, _), (new, labels, _) = shortcut
    plain = RobustClassifier().fit(X, y, groups=np.zeros(len(y)))
    some = RobustClassifier().fit(X, y, groups=answered((X[:, 30] > 5).astype(int), 24))
    assert some.score(new, labels) > plain.score(new, labels) - 0.02


def test_answers_that_never_go_against_the_class_change_nothing_and_say_so(shortcut):
    (X, y, _), _ = shortcut
    plain = RobustClassifier().fit(X, y, groups=np.zeros(len(y)))
    for groups, why in ((y, "one class only"), (np.zeros(len(y)), "same for all")):
        model = RobustClassifier().fit(X, y, groups=answered(groups, 24))
        assert model.treatment_.name == "logit_adjustment"
        assert why in str(model.treatment_)
        np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-3 * np.abs(plain.coef_).max())


def test_several_attributes_act_together_where_samples_suffice(shortcut):
    (X, y, place), _ = shortcut
    camera = np.random.default_rng(5).integers(0, 2, len(y))
    both = np.stack([answered(place, 96), answered(camera, 96)], 1)
    found = RobustClassifier().fit(X, y, groups=both).treatment_
    assert found.values == ["0 0", "0 1", "1 0", "1 1"]
    few = RobustClassifier().fit(X[:90], y[:90], groups=np.stack([place, camera], 1)[:90]).treatment_
    assert few.values == ["0", "1"]
    assert set(few.attributes.tolist()) == {0, 1}


def test_groups_that_cannot_be_used_and_unfitted_reports_are_refused_in_a_sentence(tmp_path):
    X, y, _ = birds(300, 0.1, 0)
    for groups, why in (
        (np.array([1, "a"] * 150, dtype=object), "groups cannot be told apart"),
        ([None] * 300, "no known value"),
        (np.zeros(299), "one entry per sample"),
    ):
        with pytest.raises(ValueError, match=why):
            RobustClassifier().fit(X, y, groups=groups)
    with pytest.raises(NotFittedError):
        RobustClassifier().report(tmp_path / "page.html")


def test_a_feature_with_a_small_deviation_beside_its_mean_is_no_constant():
    generator = np.random.default_rng(0)
    y = np.arange(200) % 2
    X = 1e-3 + 1e-8 * (3 * y + generator.normal(size=200))[:, None]
    assert RobustClassifier().fit(X, y).score(X, y) > 0.85
