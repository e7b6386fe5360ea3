"""icda.ask: which samples a person is asked about."""

import numpy as np
import pytest

import icda
from support import shortcut_data


def birds(samples=900, minority=0.06, seed=0):
    X, y, place = shortcut_data(samples, 1 - minority, 40, (6, 0.4), (4, 1.5), seed)
    return X, np.array(["land", "water"])[y], place


def answered(number):
    """The birds, and what a person says who is asked a dozen at a time."""
    X, y, place = birds()
    groups = np.full(len(y), None, dtype=object)
    for _ in range(number // 12):
        index = icda.ask(X, y, groups).index
        groups[index] = place[index]
    return X, y, place, groups


def test_two_dozen_questions_show_the_rare_group_of_every_class():
    _, y, place, groups = answered(24)
    known = np.array([group is not None for group in groups])
    assert known.sum() == 24
    rare = (place == 1) != (y == "water")
    for label in ("land", "water"):
        assert (known & rare & (y == label)).sum() >= 3
        assert (known & ~rare & (y == label)).sum() >= 3


def test_the_same_call_asks_the_same_and_never_twice():
    X, y, _, groups = answered(24)
    first, again = icda.ask(X, y, groups, 12), icda.ask(X, y, groups, 12)
    np.testing.assert_array_equal(first.index, again.index)
    assert len(first.reasons) == len(np.unique(first.index)) == 12
    assert all(groups[row] is None for row in first.index)
    skipped = icda.ask(X, y, groups, 12, skip=first.index)
    assert not set(first.index) & set(skipped.index)
    assert not np.array_equal(icda.ask(X, y, groups, 12, seed=1).index, first.index)


def test_enough_answers_are_called_enough_and_a_repaired_head_comes_near_the_oracle():
    X, y, place, groups = answered(96)
    asked = icda.ask(X, y, groups)
    assert asked.enough
    assert asked.stability >= 0.97
    few = icda.ask(X, y)
    assert (few.enough, few.stability, few.quality) == (False, None, None)
    new, labels, where = birds(3000, 0.5, 1)

    def worst(model):
        right = model.predict(new) == labels
        return min(right[(labels == a) & (where == b)].mean() for a in ("land", "water") for b in (0, 1))

    plain, known, whole = (
        worst(icda.RobustClassifier().fit(X, y, groups=given)) for given in (np.zeros(len(y)), groups, place)
    )
    assert known - plain > 0.9 * (whole - plain) > 0.2


def test_samples_that_were_never_contradicted_are_asked_when_no_others_are_left():
    X, y, _ = birds(40)
    groups = np.full(40, None, dtype=object)
    assert sorted(icda.ask(X, y, groups, 40).index) == list(range(40))
    groups[:] = "same"
    assert len(icda.ask(X, y, groups).index) == 0


@pytest.mark.parametrize(("given", "why"), [({"n": 0}, "n"), ({"groups": [None] * 3}, "one group per sample")])
def test_wrong_calls_are_refused(given, why):
    X, y, _ = birds(60)
    with pytest.raises(ValueError, match=why):
        icda.ask(X, y, **given)
    with pytest.raises(ValueError, match="class"):
        icda.ask(X, np.zeros(60))
