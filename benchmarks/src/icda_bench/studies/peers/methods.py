"""The classifiers compared: each as its documentation shows it, given groups where it takes them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

import icda
from icda_bench.studies.features import FeaturePart
from icda_bench.studies.peers.sets import GROUP

MAX_ITER = 1000  # LogisticRegression's 100 do not converge
DOZEN = 12
Predict = Callable[[FeaturePart], np.ndarray]


@dataclass(frozen=True)
class Method:
    """A classifier: `fit(train, seed)` gives what predicts; `package` has to be installed for it.

    `given` is what it gets beside features and labels, `at_prediction` what it needs beside features.
    """

    title: str
    fit: Callable[[FeaturePart, int], Predict]
    given: str = ""
    at_prediction: str = ""
    package: str = "sklearn"


def group_weights(part: FeaturePart) -> np.ndarray:
    """Weights (N,) under which every pair of class and attribute counts alike."""
    return compute_sample_weight("balanced", part.groups(GROUP))


def _predicts(model: Any) -> Predict:
    return lambda part: model.predict(part.features)


def _logistic(class_weight: str | None = None) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(class_weight=class_weight, max_iter=MAX_ITER))


def _fit_logistic(train: FeaturePart, seed: int, class_weight: str | None = None) -> Predict:
    return _predicts(_logistic(class_weight).fit(train.features, train.targets))


def _fit_logistic_cv(train: FeaturePart, seed: int) -> Predict:
    head = LogisticRegressionCV(
        class_weight="balanced",
        scoring="balanced_accuracy",
        max_iter=MAX_ITER,
        l1_ratios=(0,),
        use_legacy_attributes=False,
    )
    return _predicts(make_pipeline(StandardScaler(), head).fit(train.features, train.targets))


def _fit_weighted_logistic(train: FeaturePart, seed: int) -> Predict:
    weights = group_weights(train)
    return _predicts(_logistic().fit(train.features, train.targets, logisticregression__sample_weight=weights))


def _fit_boosting(
    train: FeaturePart, seed: int, class_weight: str | None = None, weigh: Callable[..., Any] = lambda train: None
) -> Predict:
    model = HistGradientBoostingClassifier(class_weight=class_weight, random_state=seed)
    return _predicts(model.fit(train.features, train.targets, sample_weight=weigh(train)))


def _fit_thresholds(train: FeaturePart, seed: int, objective: str) -> Predict:
    fairlearn = importlib.import_module("fairlearn.postprocessing")
    model = fairlearn.ThresholdOptimizer(
        estimator=_logistic(), constraints="equalized_odds", objective=objective, predict_method="predict_proba"
    )
    model.fit(train.features, train.targets, sensitive_features=train.attributes[GROUP])
    return lambda part: model.predict(part.features, sensitive_features=part.attributes[GROUP], random_state=seed)


def _fit_reduction(train: FeaturePart, seed: int, balanced: bool) -> Predict:
    fairlearn = importlib.import_module("fairlearn.reductions")
    costs = None
    if balanced:  # both classes cost as much in all
        share = float(train.targets.mean())
        costs = {"fp": min(1.0, share / (1 - share)), "fn": min(1.0, (1 - share) / share)}
    model = fairlearn.ExponentiatedGradient(
        _logistic(),
        fairlearn.EqualizedOdds(),
        objective=fairlearn.ErrorRate(costs=costs),
        sample_weight_name="logisticregression__sample_weight",
    )
    model.fit(train.features, train.targets, sensitive_features=train.attributes[GROUP])
    return lambda part: np.asarray(model.predict(part.features, random_state=seed))


def _fit_cleaned(train: FeaturePart, seed: int) -> Predict:
    cleanlab = importlib.import_module("cleanlab.classification")
    model = cleanlab.CleanLearning(_logistic(), seed=seed)
    return _predicts(model.fit(train.features, train.targets))


def _fit_ours(train: FeaturePart, seed: int) -> Predict:
    return _predicts(icda.RobustClassifier(random_state=seed).fit(train.features, train.targets))


def _fit_with_groups(train: FeaturePart, seed: int) -> Predict:
    model = icda.RobustClassifier(random_state=seed)
    return _predicts(model.fit(train.features, train.targets, groups=train.attributes[GROUP]))


def _fit_with_answers(train: FeaturePart, seed: int, answers: int) -> Predict:
    """By the dozen, as the question page does it; the person is always right."""
    known = np.full(len(train.targets), None, dtype=object)
    for _ in range(0, answers, DOZEN):
        asked = icda.ask(train.features, train.targets, known, n=DOZEN, seed=seed)
        known[asked.index] = train.attributes[GROUP][asked.index]
    model = icda.RobustClassifier(random_state=seed)
    return _predicts(model.fit(train.features, train.targets, groups=known))


GROUPS = "all groups"
ATTRIBUTE = "the attribute"
METHODS: dict[str, Method] = {
    "lr": Method("LogisticRegression", _fit_logistic),
    "lr_balanced": Method("LogisticRegression, balanced", partial(_fit_logistic, class_weight="balanced")),
    "lr_cv": Method("LogisticRegressionCV, balanced", _fit_logistic_cv),
    "lr_groups": Method("LogisticRegression, group weights", _fit_weighted_logistic, GROUPS),
    "hgb": Method("HistGradientBoosting", _fit_boosting),
    "hgb_balanced": Method("HistGradientBoosting, balanced", partial(_fit_boosting, class_weight="balanced")),
    "hgb_groups": Method("HistGradientBoosting, group weights", partial(_fit_boosting, weigh=group_weights), GROUPS),
    "thresholds": Method(
        "fairlearn ThresholdOptimizer",
        partial(_fit_thresholds, objective="accuracy_score"),
        GROUPS,
        ATTRIBUTE,
        "fairlearn",
    ),
    "thresholds_balanced": Method(
        "fairlearn ThresholdOptimizer, balanced",
        partial(_fit_thresholds, objective="balanced_accuracy_score"),
        GROUPS,
        ATTRIBUTE,
        "fairlearn",
    ),
    "reduction": Method(
        "fairlearn ExponentiatedGradient", partial(_fit_reduction, balanced=False), GROUPS, package="fairlearn"
    ),
    "reduction_balanced": Method(
        "fairlearn ExponentiatedGradient, balanced", partial(_fit_reduction, balanced=True), GROUPS, package="fairlearn"
    ),
    "cleanlab": Method("cleanlab CleanLearning", _fit_cleaned, package="cleanlab"),
    "icda": Method("**icda RobustClassifier**", _fit_ours),
    "icda_24": Method("**icda, 24 answers**", partial(_fit_with_answers, answers=24), "24 groups"),
    "icda_48": Method("**icda, 48 answers**", partial(_fit_with_answers, answers=48), "48 groups"),
    "icda_groups": Method("**icda, all groups**", _fit_with_groups, GROUPS),
}


def installed(method: Method) -> bool:
    return importlib.util.find_spec(method.package) is not None
