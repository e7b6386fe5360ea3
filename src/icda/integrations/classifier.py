"""ICDA and its neighbours as a scikit-learn classifier on embeddings or a table."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from icda.linear.objective import LossName, LossSettings
from icda.linear.pseudo_groups import balance_weights, contrast_groups
from icda.linear.solver import LinearHead, Problem, fit_head

LOSSES = ("ce", "la", "isda", "risda", "icda")


class ICDAClassifier(ClassifierMixin, BaseEstimator):
    """A linear classifier on fixed features, trained with the ICDA loss (or CE, LA, ISDA, RISDA) on all samples at once.

    Statistics are exact, lambda stands at its final value, and L-BFGS does the work; full covariances cost no more than
    cross entropy, because only the logits' moments are needed. `C` is the inverse regularisation strength, as in
    scikit-learn's LogisticRegression. Scale your features first (StandardScaler).

    `balance` decides which samples count how much: None (all the same), "class", "group" (needs `groups` in fit), or
    "contrast", ours and not the paper's: groups are guessed, without any group label, from where a biased and a robust
    head disagree (`icda.linear.pseudo_groups`), and then balanced.

    Parameters
    ----------
    loss : {"icda", "ce", "la", "isda", "risda"}
    lambda0, beta : strengths of augmentation and sample margin.
    C : inverse of the weight decay.
    balance : None, "class", "group" or "contrast".
    max_iter, tol : of L-BFGS.
    random_state : seed of the folds of "contrast".

    Attributes
    ----------
    classes_, coef_, intercept_, n_iter_, n_features_in_ : as in scikit-learn; coef_ has one row a class, also for two.
    groups_ : the groups that were balanced, where there were any.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> bool(ICDAClassifier(C=0.1).fit(X / 16, y).score(X / 16, y) > 0.95)
    True
    """

    def __init__(
        self,
        loss: LossName = "icda",
        *,
        lambda0: float = 0.5,
        beta: float = 0.1,
        C: float = 1.0,
        balance: Literal["class", "group", "contrast"] | None = None,
        max_iter: int = 200,
        tol: float = 1e-4,
        random_state: int | None = 0,
    ) -> None:
        self.loss = loss
        self.lambda0 = lambda0
        self.beta = beta
        self.C = C
        self.balance = balance
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> ICDAClassifier:
        """Fit the head. `sample_weight` and `groups` have one entry a sample."""
        self._check_settings()
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C")
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"ICDAClassifier needs samples of at least 2 classes, got one class: {self.classes_[0]!r}."
            )
        if groups is not None and np.shape(groups) != (len(y),):
            raise ValueError(f"groups must have one entry a sample, wanted shape ({len(y)},), got {np.shape(groups)}.")
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        used = weights > 0
        X, codes, weights = X[used], codes[used], weights[used]
        if len(np.unique(codes)) < len(self.classes_):
            raise ValueError("ICDAClassifier: a class has no sample with a positive sample_weight.")
        problem = self._problem(torch.from_numpy(np.ascontiguousarray(X)), torch.from_numpy(codes), weights)
        problem = self._balanced(problem, None if groups is None else np.asarray(groups)[used])
        settings = LossSettings(self.loss, self.lambda0, self.beta)
        self._keep(fit_head(problem, settings, self.max_iter, self.tol))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Logits (N, C), or for two classes the difference (N,) as scikit-learn has it."""
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> np.ndarray:
        return torch.softmax(torch.from_numpy(self._logits(X)), 1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        logits = self._logits(X)
        return self.classes_[logits.argmax(1)]

    def _logits(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return X @ self.coef_.T.astype(X.dtype) + self.intercept_.astype(X.dtype)

    def _problem(self, features: Tensor, targets: Tensor, weights: np.ndarray) -> Problem:
        mass = torch.from_numpy(weights / weights.mean()).to(features)
        counts = torch.bincount(targets, mass.double(), minlength=len(self.classes_))
        decay = 1 / (self.C * float(weights.sum()))
        return Problem(features, targets, len(self.classes_), mass, mass, counts, decay)

    def _balanced(self, problem: Problem, groups: np.ndarray | None) -> Problem:
        """The problem with the weights that `balance` asks for; the prior then has nothing left to say."""
        if self.balance is None:
            return problem
        if self.balance == "class":
            labels = problem.targets
        elif self.balance == "group":
            if groups is None:
                raise ValueError('balance="group" needs groups: fit(X, y, groups=...).')
            _, codes = np.unique(groups, return_inverse=True)
            labels = problem.targets * (int(codes.max()) + 1) + torch.from_numpy(codes)
        else:
            labels = contrast_groups(problem, seed=self.random_state or 0).groups
        self.groups_ = labels.numpy()
        _, dense = torch.unique(labels, return_inverse=True)
        weights = problem.weights * balance_weights(dense).to(problem.weights)
        counts = torch.bincount(problem.targets, weights.double(), minlength=problem.num_classes)
        return replace(problem, weights=weights, statistics_weights=weights, class_counts=counts)

    def _keep(self, head: LinearHead) -> None:
        self.coef_, self.intercept_ = head.weight.numpy(), head.bias.numpy()
        self.n_iter_ = head.iterations
        if not head.converged:
            warnings.warn(
                f"ICDAClassifier stopped at max_iter={self.max_iter} before reaching tol={self.tol}: "
                "scale the features, raise max_iter, or lower C.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _check_settings(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {self.loss!r}.")
        if self.balance not in (None, "class", "group", "contrast"):
            raise ValueError(f"balance must be None, class, group or contrast, got {self.balance!r}.")
        if not self.C > 0 or self.lambda0 < 0:
            raise ValueError(f"C must be positive and lambda0 not negative, got {self.C} and {self.lambda0}.")
