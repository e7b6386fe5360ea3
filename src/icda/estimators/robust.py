"""A classifier that audits its training data, acts on what it finds and says what it did."""

from __future__ import annotations

import warnings
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import Tensor

from icda.auditing.assessment import Assessment, assess
from icda.auditing.inputs import DECAY
from icda.auditing.page import render_assessment_page
from icda.auditing.treatment import Treatment
from icda.errors import InputError
from icda.estimators.predictions import LinearPredictions
from icda.estimators.refusals import unchanged_if_refused
from icda.linear.objective import LossSettings
from icda.linear.problem import Problem
from icda.linear.pseudo_groups import guess_attributes
from icda.linear.rows import refuse_sparse
from icda.linear.solver import LinearHead, fit_head


class RobustClassifier(LinearPredictions, ClassifierMixin, BaseEstimator):
    """A linear classifier on embeddings or a table that looks for a shortcut, wrong labels and a long tail first.

    `fit` standardises the features, audits them (`icda.auditing`), and fits a head with what the verdicts call for: a prior
    over what the shortcut says of each sample, less weight for labels that unseeing heads do not believe, and logit
    adjustment always. What is tried and does not help is dropped; where the audit cannot tell, plain logit adjustment
    remains. Given `groups`, or metadata with groups, nothing has to be guessed.

    Parameters
    ----------
    loss : {"la", "icda"}, what the head is trained with after the treatment.
    C : inverse of the weight decay on standardised features; None takes the best of 1000 / (samples x features) and 10 and
        100 times as much by cross-fitted balanced accuracy, and the first of them above 3 million numbers.
    max_iter, tol : of L-BFGS.
    random_state : seed of halves and folds.

    Attributes
    ----------
    audit_ : `.verdicts` and what they rest on (`icda.auditing.assessment.Assessment`); None if groups were given.
    treatment_ : what was done, why, and what was expected of it; `str` gives sentences.
    C_ : the inverse decay that was used.
    classes_, coef_, intercept_, n_iter_, n_features_in_ : as in scikit-learn, for features as given.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = RobustClassifier().fit(X[:900], y[:900])
    >>> model.audit_.verdicts["shortcut"].answer, model.treatment_.name
    ('no', 'logit_adjustment')
    >>> bool(model.score(X[900:], y[900:]) > 0.9)
    True
    """

    def __init__(
        self,
        loss: Literal["la", "icda"] = "la",
        *,
        C: float | None = None,
        max_iter: int = 200,
        tol: float = 1e-4,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.loss = loss
        self.C = C
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    @unchanged_if_refused
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        X_meta: Any = None,
        y_meta: Any = None,
        groups_meta: Any = None,
    ) -> RobustClassifier:
        """Audit, treat and fit.

        `groups` (N,) are attributes of the samples, or groups made of class and attribute. `X_meta`, `y_meta` and
        `groups_meta` are some more samples whose groups are known: heads learn to read the group off them, and their
        answers serve as groups.
        """
        self._check_settings()
        refuse_sparse(X, "X", "RobustClassifier")
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C")
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"RobustClassifier needs samples of at least 2 classes, got one class: {self.classes_.tolist()[0]!r}."
            )
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        used = weights > 0
        if len(np.unique(codes[used])) < len(self.classes_):
            raise InputError("RobustClassifier: a class has no sample with a positive sample_weight.")
        mean, scale = weighted_moments(X[used], weights[used])
        features = torch.from_numpy((X[used] - mean) / scale)
        problem = self._problem(features, torch.from_numpy(codes[used]), weights[used])
        attributes = self._known_attributes(X, used, groups, X_meta, y_meta, groups_meta, mean, scale)
        seed = self._seed()
        self.treatment_ = self._treatment(problem, attributes, groups is not None, seed)
        unit, settings = 1 / float(weights[used].mean()), LossSettings(self.loss)
        if self.C is None:
            treated = self.treatment_.prepared(problem, settings, seed, unit)
        else:
            treated = self.treatment_.applied(problem, unit)
        self.C_ = 1 / (treated.decay * float(weights[used].sum()))
        self._keep_unscaled(fit_head(treated, settings, self.max_iter, self.tol), mean, scale)
        return self

    def report(self, path: str | PathLike[str]) -> Path:
        """Write one page with the verdicts, their reasons and what was done about them."""
        check_is_fitted(self, "treatment_")
        path = Path(path).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        known = {} if self.audit_ is None else self.audit_.as_dict()
        known["treatment"] = self.treatment_.as_dict()
        known["class_names"] = [str(name) for name in self.classes_]
        path.write_text(render_assessment_page(known), encoding="utf-8", errors="xmlcharrefreplace")
        return path

    def _treatment(self, problem: Problem, attributes: Tensor | None, were_given: bool, seed: int) -> Treatment:
        self.audit_: Assessment | None = None
        if attributes is None:
            assert isinstance(problem.features, Tensor)
            self.audit_ = assess(problem.features, problem.targets, len(self.classes_), seed)
            return self.audit_.treatment
        why = "Groups were given, so nothing was guessed."
        if not were_given:
            why = "Groups of the training samples were read off their features by heads that the metadata taught."
        if tells_the_class(attributes, problem.targets):
            # log P(y | group) would say the label, and nothing would be left to learn.
            return Treatment("group_weights", [why, "Each group holds one class."], attributes=attributes)
        return Treatment("group_prior", [why], attributes=attributes)

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _known_attributes(
        self,
        X: np.ndarray,
        used: np.ndarray,
        groups: Any,
        X_meta: Any,
        y_meta: Any,
        groups_meta: Any,
        mean: np.ndarray,
        scale: np.ndarray,
    ) -> Tensor | None:
        """Groups as numbers, given or read off metadata; None without either."""
        if groups is not None:
            if np.shape(groups) != (len(X),):
                raise InputError(
                    f"groups must have one entry per sample, expected shape ({len(X)},), got {np.shape(groups)}."
                )
            try:
                return torch.from_numpy(np.unique(np.asarray(groups)[used], return_inverse=True)[1])
            except TypeError as error:
                raise InputError(
                    f"groups cannot be told apart ({error}): give numbers or texts, none missing."
                ) from error
        given = [value is not None for value in (X_meta, y_meta, groups_meta)]
        if not any(given):
            return None
        if not all(given):
            raise InputError("metadata need X_meta, y_meta and groups_meta, all three: one of them is missing.")
        return self._read_off_metadata(X, used, X_meta, y_meta, groups_meta, mean, scale)

    def _read_off_metadata(
        self,
        X: np.ndarray,
        used: np.ndarray,
        X_meta: Any,
        y_meta: Any,
        groups_meta: Any,
        mean: np.ndarray,
        scale: np.ndarray,
    ) -> Tensor:
        """What heads that learned the metadata's groups say of the training samples."""
        X_meta = check_array(X_meta, dtype=X.dtype, input_name="X_meta", estimator=self)
        if X_meta.shape[1] != X.shape[1]:
            raise InputError(
                f"X_meta has {X_meta.shape[1]} features, but RobustClassifier is expecting {X.shape[1]} features as input."
            )
        y_meta, groups_meta = column_or_1d(y_meta), column_or_1d(groups_meta)
        check_consistent_length(X_meta, y_meta, groups_meta)
        if not np.isin(y_meta, self.classes_).all():
            raise InputError("y_meta holds classes that y does not.")
        features = torch.from_numpy((X_meta - mean) / scale)
        codes = torch.from_numpy(np.searchsorted(self.classes_, y_meta))
        values = torch.from_numpy(np.unique(groups_meta, return_inverse=True)[1])
        metadata = self._problem(features, codes, np.ones(len(codes), X.dtype))
        return guess_attributes(torch.from_numpy((X[used] - mean) / scale), metadata, values, self.max_iter)

    def _problem(self, features: Tensor, targets: Tensor, weights: np.ndarray) -> Problem:
        mass = torch.from_numpy(weights / weights.mean()).to(features.dtype)
        counts = torch.bincount(targets, mass.double(), minlength=len(self.classes_))
        decay = DECAY * features.shape[1] if self.C is None else 1 / (self.C * float(weights.sum()))
        return Problem(features, targets, len(self.classes_), mass, mass, counts, decay)

    def _keep_unscaled(self, head: LinearHead, mean: np.ndarray, scale: np.ndarray) -> None:
        """The head for features as given: w . (x - mean) / scale + b."""
        self.coef_ = head.weight.numpy() / scale
        self.intercept_ = head.bias.numpy() - self.coef_ @ mean
        self.n_iter_ = head.iterations
        if not head.converged:
            warnings.warn(
                f"RobustClassifier stopped after max_iter={self.max_iter} iterations: raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _check_settings(self) -> None:
        if self.loss not in ("la", "icda"):
            raise InputError(f"loss must be la or icda, got {self.loss!r}.")
        if self.C is not None and not self.C > 0:
            raise InputError(f"C must be positive or None, got {self.C}.")


def tells_the_class(attributes: Tensor, targets: Tensor) -> bool:
    """Whether every value of the attribute goes with one class only, as groups made of class and attribute do.

    >>> tells_the_class(torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1]))
    True
    >>> tells_the_class(torch.tensor([0, 0]), torch.tensor([0, 1]))
    False
    """
    pairs = torch.stack([attributes.long(), targets], 1).unique(dim=0)
    return len(pairs) == len(attributes.unique())


def weighted_moments(X: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each feature; the deviation of a constant one counts as 1.

    >>> weighted_moments(np.array([[1.0], [3.0]]), np.array([1.0, 3.0]))[0].tolist()
    [2.5]
    """
    share = (weights / weights.sum(dtype=np.float64)).astype(np.float64)
    mean = share @ X
    deviation = np.sqrt(share @ np.square(X - mean))
    constant = deviation <= len(X) * np.finfo(np.float64).eps * np.abs(mean)
    return mean.astype(X.dtype), np.where(constant, 1.0, deviation).astype(X.dtype)
