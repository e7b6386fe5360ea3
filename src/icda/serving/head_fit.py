"""Heads for `icda fit`: the one that the audit recommends, or one by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import torch

from icda.auditing.inputs import default_inverse_decay
from icda.auditing.treatment import Treatment
from icda.cross_fit.conditional_prior import joint_counts
from icda.errors import InputError
from icda.estimators.classifier import ICDAClassifier
from icda.estimators.robust import RobustClassifier, weighted_moments
from icda.linear.balance import rebalance
from icda.linear.decay import choose_decay
from icda.linear.objective import LossName, LossSettings
from icda.linear.problem import Problem
from icda.linear.solver import fit_head
from icda.registry import did_you_mean
from icda.serving.head import ShortcutReader

AUTO = "auto"
PLAIN = "ce"  # what one would train without a look at the data
ALIASES = {"cross_entropy": "ce", "logit_adjustment": "la"}
SENTENCES = {
    "ce": "Cross entropy, nothing else.",
    "la": "Logit adjustment: the class prior is taken off.",
    "isda": "ISDA: implicit augmentation with the covariance of each class.",
    "risda": "RISDA: implicit augmentation with the classes that a sample is confused with.",
    "icda": "ICDA: implicit counterfactual augmentation, with logit adjustment.",
}


@dataclass(frozen=True)
class Head:
    """A fitted head for features as they come, and what was done to get it."""

    classes: np.ndarray
    coef: np.ndarray
    intercept: np.ndarray
    treatment: Treatment | None  # None where the user named the method
    estimator: Any


def check_method(name: str) -> str:
    """The name of a head; `auto` does what the audit recommends.

    >>> check_method("logit_adjustment")
    'la'
    >>> check_method("icad")
    Traceback (most recent call last):
    icda.errors.InputError: --method is 'icad': did you mean 'icda'? Known: auto, ce, la, isda, ...
    """
    name = ALIASES.get(name, name)
    known = (AUTO, *get_args(LossName))
    if name not in known:
        hint = did_you_mean(name, known)
        raise InputError(
            f"--method is {name!r}: {hint}Known: {', '.join(known)}; with --train any of `icda list methods`."
        )
    return name


def fit_named(method: str, X: np.ndarray, y: np.ndarray, seed: int, groups: np.ndarray | None = None) -> Head:
    """Audit, treat and fit (`auto`), or fit the named loss to standardised features.

    With `groups` nothing has to be guessed: `auto` takes the prior, or the weights, of the groups.
    """
    if method == AUTO:
        robust = RobustClassifier(random_state=seed).fit(X, y, groups=groups)
        return Head(robust.classes_, robust.coef_, robust.intercept_, robust.treatment_, robust)
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    mean, scale = weighted_moments(X, np.ones(len(X), X.dtype))
    scaled, codes = (X - mean) / scale, torch.from_numpy(np.unique(y, return_inverse=True)[1])
    problem = Problem.of(torch.from_numpy(scaled), codes, int(codes.max()) + 1, default_inverse_decay(*X.shape))
    # The decay is chosen as for the recommended head: what is compared is the loss.
    decay = choose_decay(problem, LossSettings(method), codes, seed).decay  # type: ignore[arg-type]
    plain = ICDAClassifier(method, C=1 / (decay * len(X)), random_state=seed)  # type: ignore[arg-type]
    plain.fit(scaled, y)
    coef = plain.coef_ / scale
    return Head(plain.classes_, coef, plain.intercept_ - coef @ mean, None, plain)


def fit_shortcut_reader(X: np.ndarray, y: np.ndarray, attributes: torch.Tensor) -> ShortcutReader:
    """A head that reads the attribute off new samples, every pair of class and attribute counting the same.

    Balanced so that it cannot answer with the class: what is left is the shortcut.
    """
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    mean, scale = weighted_moments(X, np.ones(len(X), X.dtype))
    targets = torch.from_numpy(np.unique(y, return_inverse=True)[1])
    values, codes = attributes.unique(return_inverse=True)
    features = torch.from_numpy((X - mean) / scale)
    problem = Problem.of(features, targets, int(targets.max()) + 1, default_inverse_decay(*X.shape))
    weights = rebalance(problem, codes).weights
    counts = torch.bincount(codes, minlength=len(values)).double()
    reader = replace(problem, targets=codes, num_classes=len(values), weights=weights, class_counts=counts)
    head = fit_head(reader, LossSettings("ce"))
    coef = head.weight.numpy() / scale
    likeliest = joint_counts(codes, targets, len(values), problem.num_classes).argmax(1)
    return ShortcutReader(coef, head.bias.numpy() - coef @ mean, likeliest.numpy())
