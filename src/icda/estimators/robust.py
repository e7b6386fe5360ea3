"""A classifier that audits its training data, acts on what it finds and says what it did."""

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from icda.auditing.assessment import Assessment
from icda.auditing.inputs import DECAY
from icda.auditing.page import render_assessment_page
from icda.auditing.plan import plan_by_attributes, plan_rows, treated_problem
from icda.errors import InputError
from icda.estimators.predictions import LinearPredictions
from icda.estimators.samples import (
    check_groups,
    check_metadata,
    check_samples,
    check_settings,
    check_weights,
    encode_classes,
)
from icda.heads.blocks import BlockRows
from icda.heads.problem import LossSettings
from icda.heads.solver import fit_head
from icda.heads.spreading import reading_head
from icda.results.files import write_page

TAUGHT = "Groups of the training samples were read off their features by heads that the metadata taught."


class RobustClassifier(LinearPredictions, ClassifierMixin, BaseEstimator):
    """A linear classifier on embeddings or a table that looks for a shortcut, wrong labels and a long tail first.

    `fit` standardises the features, audits them (`icda.auditing`), and fits a head with what the verdicts call for: a prior
    over what the shortcut says of each sample, less weight for labels that unseeing heads do not believe, and logit
    adjustment always. What does not help, or where the audit cannot tell, is left out. Given `groups` of all samples or of
    two dozen (`icda.ask` says which), or metadata with groups, nothing has to be guessed.

    Parameters
    ----------
    loss : {"la", "icda"}, what the head is trained with after the treatment.
    C : inverse of the weight decay on standardised features; None takes the best of 1000 / (samples x features) and 10 and
        100 times as much by cross-fitted balanced accuracy, of 3,000 samples where there are more (the first of them
        where those have more than 1,000 features).
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

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        X_meta: Any = None,
        y_meta: Any = None,
        groups_meta: Any = None,
        assessment: Assessment | None = None,
    ) -> Self:
        """Audit, treat and fit.

        Args:
            X: Features (N, A).
            y: Labels (N,).
            sample_weight: How much each sample counts (N,).
            groups: Attributes of the samples (N,), or groups made of class and attribute; None, NaN or pandas.NA where one
                is not known: it is then read off the features. Several attributes (N, M) act together where the samples
                suffice for it.
            X_meta, y_meta, groups_meta: Some more samples whose groups are known: heads learn to read the group off them,
                and their answers serve as groups.
            assessment: What an audit of the same samples has found already: `icda.audit(X, y).assessment`.
        """
        check_settings(self, () if self.C is None else ("C",), loss=("la", "icda"))
        X, y = check_samples(self, X, y)
        codes = encode_classes(self, y)
        weights, used = check_weights(self, sample_weight, y, X.dtype)
        if assessment is not None and len(X[used]) < len(X):
            raise InputError(
                "an assessment is of samples that all count, here some weigh nothing: leave those out of both."
            )
        rows = BlockRows.of_arrays(X[used], codes[used], weights[used], self._seed())
        known = None if groups is None else check_groups(groups, len(used))[used]
        taught = known is None and any(part is not None for part in (X_meta, y_meta, groups_meta))
        if taught:
            known = self._read_groups(rows, X_meta, y_meta, groups_meta)
        if known is not None and known.ndim == 1:
            rows = rows.with_groups(known)
        plan = plan_rows(rows, assessment) if known is None or known.ndim == 1 else plan_by_attributes(rows, known)
        if taught:
            plan = replace(plan, treatment=replace(plan.treatment, reasons=[TAUGHT]))
        total = float(weights[used].sum())
        decay = None if self.C is None else 1 / (self.C * total)
        settings = LossSettings(self.loss)
        problem, self.treatment_ = treated_problem(rows, plan, settings, decay)
        self.audit_, self.C_ = plan.assessment, 1 / (problem.decay * total)
        self._keep(rows.unscaled(fit_head(problem, settings, self.max_iter, self.tol)))
        return self

    def report(self, path: str | PathLike[str]) -> Path:
        """Write one page with the verdicts, their reasons and what was done about them."""
        check_is_fitted(self, "treatment_")
        path = Path(path).expanduser()
        known = {} if self.audit_ is None else self.audit_.as_dict()
        known["treatment"] = self.treatment_.as_dict()
        known["class_names"] = [str(name) for name in self.classes_]
        write_page(path, render_assessment_page(known))
        return path

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _read_groups(self, rows: BlockRows, X_meta: Any, y_meta: Any, groups_meta: Any) -> np.ndarray:
        """The group of each sample, by a head that the metadata taught."""
        if any(part is None for part in (X_meta, y_meta, groups_meta)):
            raise InputError("metadata need X_meta, y_meta and groups_meta, all three: one of them is missing.")
        assert rows.reading.scaling is not None
        features = rows.everything.features
        X_meta, found = check_metadata(self, X_meta, y_meta, features.numpy().dtype)
        codes, groups_meta = torch.from_numpy(found), column_or_1d(groups_meta)
        check_consistent_length(X_meta, groups_meta)
        values = torch.from_numpy(np.unique(groups_meta, return_inverse=True)[1])
        decay = DECAY * X_meta.shape[1] if self.C is None else 1 / (self.C * len(codes))
        trusted = rows.reading.scaling.apply(torch.from_numpy(X_meta))
        head = reading_head(trusted, codes, values, len(self.classes_), decay)
        return head.logits(features).argmax(1).numpy()
