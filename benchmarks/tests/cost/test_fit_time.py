import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from icda_bench.cost.fit_time import compare, objective


def made_up(classes):
    generator = np.random.default_rng(0)
    y = np.arange(300) % classes
    return (generator.normal(size=(300, 6)) + y[:, None] * 0.5).astype(np.float32), y


@pytest.mark.parametrize("classes", [2, 3])
def test_both_minimise_the_same_objective(classes):
    X, y = made_up(classes)
    (row,) = compare("made up", X, y, ("ce",), C=0.05, rounds=2)
    assert row["objective"] == pytest.approx(row["reference_objective"], rel=1e-3)
    assert (row["samples"], row["features"], row["classes"]) == (300, 6, classes)
    assert row["ratio"] > 0


def test_the_objective_is_that_of_a_naive_loop():
    X, y = made_up(3)
    model = LogisticRegression(C=0.1).fit(X, y)
    total = 0.0
    for features, label in zip(X.astype(float), y, strict=True):
        logits = [float(row @ features + bias) for row, bias in zip(model.coef_, model.intercept_, strict=True)]
        total += np.log(sum(np.exp(logits))) - logits[label]
    wanted = total / 300 + float((model.coef_.astype(float) ** 2).sum()) / (2 * 0.1 * 300)
    assert objective(model, X, y, 0.1) == pytest.approx(wanted, abs=1e-7)
