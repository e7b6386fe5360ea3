import numpy as np
import pytest
import sklearn
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

from icda import ICDAClassifier
from icda.errors import OperationError
from icda.metrics import worst_group_score, worst_group_scorer


def test_it_is_the_least_accuracy_over_groups():
    generator = np.random.default_rng(0)
    truth, answers, groups = (generator.integers(3, size=50) for _ in range(3))
    expected = min(np.mean([truth[i] == answers[i] for i in range(50) if groups[i] == g]) for g in range(3))
    assert worst_group_score(truth, answers, groups=groups) == pytest.approx(expected, abs=1e-15)


def test_groups_of_another_length_are_refused():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        worst_group_score([0, 1], [0, 1], groups=[0])


def test_without_routing_the_scorer_says_how_to_turn_it_on():
    with pytest.raises(OperationError, match="enable_metadata_routing=True"):
        worst_group_scorer()


def test_a_search_chooses_by_the_worst_group():
    X, y = load_digits(return_X_y=True)
    X, y, groups = X[:300] / 16, y[:300], np.arange(300) % 2
    with sklearn.config_context(enable_metadata_routing=True):
        model = ICDAClassifier("ce").set_fit_request(groups=False)
        search = GridSearchCV(model, {"C": [1e-6, 1.0]}, scoring=worst_group_scorer(), cv=2)
        search.fit(X, y, groups=groups)
        assert search.best_params_ == {"C": 1.0}
        first, rest = next(iter(search.cv_results_["mean_test_score"])), search.best_score_
    assert first < rest
    folds = [search.cv_results_[f"split{k}_test_score"][1] for k in range(2)]
    assert all(0 <= score <= 1 for score in folds)
