"""ICDA and its neighbours as a scikit-learn classifier on embeddings or a table."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin

from icda.auditing.plan import plan_by_groups
from icda.data.missing import encode_known
from icda.errors import InputError
from icda.estimators.samples import (
    check_groups,
    check_prior,
    check_rows,
    check_settings,
    check_weights,
    encode_classes,
    put_prior,
    solver_unit,
)
from icda.estimators.streaming import StreamingFit
from icda.functional.strength import Strength
from icda.heads.blocks import BlockRows
from icda.heads.cross_fit import cross_fitted_logits, cross_fitted_strength
from icda.heads.folds import contrast_groups
from icda.heads.problem import LossName, LossSettings, Problem, Through, rebalance, reweigh
from icda.heads.solver import fit_head

LOSSES = get_args(LossName)
Balance = Literal["class", "group", "errors", "contrast", "strength"]
STRENGTHS = ("angle", "cross_fitted")


class ICDAClassifier(StreamingFit, ClassifierMixin, BaseEstimator):
    """A linear classifier on fixed features, trained with the ICDA loss (or CE, LA, ISDA, RISDA) on all samples at once.

    Statistics are exact, lambda stands at its final value, and L-BFGS does the work; full covariances cost no more than
    cross entropy, because only the logits' moments are needed. `C` is the inverse regularisation strength, as in
    scikit-learn's LogisticRegression. Scale your features first (StandardScaler).

    Parameters
    ----------
    loss : {"icda", "ce", "la", "isda", "risda"}
    lambda0, beta : strengths of augmentation and sample margin.
    C : inverse of the weight decay.
    balance : which kinds of samples are balanced: None, "class", "group" (needs `groups` in fit), and three that are ours
        and need no group label: "contrast" guesses groups from where a biased and a robust head disagree
        (`icda.heads.folds`), and lifts the worst group; "errors" takes what a head that has not seen a sample gets wrong as
        a group; "strength" weighs samples by how little such a head believes their label.
    through : {"weights", "statistics", "prior"}; where the balance enters (`icda.heads.problem`).
    strength : {"angle", "cross_fitted"}; the paper's angle to the other classes' weights, or (ours) the probabilities
        that a head which has not seen the sample gives to them.
    max_iter, tol : of L-BFGS.
    random_state : seed of the folds, where there are any.
    class_weight : None, "balanced" or a dict from classes to weights, as in scikit-learn: it multiplies sample_weight, and
        the class counts that LA and ICDA read are those of the weighted samples.

    Attributes
    ----------
    classes_, coef_, intercept_, n_iter_, n_features_in_ : as in scikit-learn; coef_ has one row per class, also for two.
    attributes_ : the guessed or given group of every training sample, where such were balanced.

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
        balance: Balance | None = None,
        through: Through = "weights",
        strength: Literal["angle", "cross_fitted"] = "angle",
        max_iter: int = 200,
        tol: float = 1e-4,
        random_state: int | None = 0,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
    ) -> None:
        self.loss = loss
        self.lambda0 = lambda0
        self.beta = beta
        self.C = C
        self.balance = balance
        self.through = through
        self.strength = strength
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.class_weight = class_weight

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        attributes: Any = None,
        log_prior: Any = None,
    ) -> Self:
        """Fit the head. `sample_weight`, `groups` and `attributes` have one entry per sample, `log_prior` one row.

        `attributes` replace the prior of the classes by that of the classes given the attribute: the same as groups with
        balance="group" and through="prior". `log_prior` (N, C) gives each sample's prior itself, log probabilities in the
        order of `classes_`, up to a constant per sample. Every loss adds them, and both ask for balance=None.
        A `np.memmap` of 256 MiB or more (in float32) is never read as a whole: see "When X does not fit" in the docs.
        """
        self._check_settings()
        self._forget()
        features, y = check_rows(self, X, y)
        codes = encode_classes(self, y)
        given = None if groups is None else check_groups(groups, len(y))
        has_prior = check_prior(self, attributes, log_prior, len(y))
        if has_prior and self.balance is not None:
            raise InputError(f"attributes and log_prior are priors and go without balance={self.balance!r}: use None.")
        dtype = np.float64 if features.dtype == torch.float64 else np.float32
        weights, used = check_weights(self, sample_weight, y, dtype)
        if not used.all():
            features, codes, weights = features[torch.from_numpy(used)], codes[used], weights[used]
        scale = solver_unit(features)
        if scale != 1 and isinstance(features, torch.Tensor):
            features = features / scale
        problem = Problem.of(features, torch.from_numpy(codes), len(self.classes_), self.C * scale**2, weights)
        problem = self._balanced(problem, None if given is None else given[used])
        if has_prior:
            problem = put_prior(self, problem, attributes, log_prior, used)
        settings = LossSettings(self.loss, self.lambda0, self.beta)
        if self.loss == "icda" and self.strength == "cross_fitted":
            problem = replace(problem, strength=self._cross_fitted_strength(problem))
        self._keep(fit_head(problem, settings, self.max_iter, self.tol), scale)
        return self

    def _balanced(self, problem: Problem, groups: np.ndarray | None) -> Problem:
        """The problem as `balance` and `through` ask for."""
        if self.balance is None:
            return problem
        if self.balance == "strength":
            return reweigh(problem, self._cross_fitted_strength(rebalance(problem, problem.targets)).per_sample)
        attributes = problem.targets
        if self.balance == "group":
            if groups is None:
                raise InputError('balance="group" needs groups: fit(X, y, groups=...).')
            attributes = self._read_groups(problem, groups)
        elif self.balance != "class":
            rounds = 0 if self.balance == "errors" else 4
            guess = contrast_groups(problem, rounds=rounds, seed=self.random_state or 0)
            # Weights need many samples in a group: two groups per class. The prior asks what the shortcut predicts.
            attributes = guess.attributes if self.through == "prior" else guess.hurt.long()
        self.attributes_ = attributes.numpy()
        return rebalance(problem, attributes, self.through)

    def _read_groups(self, problem: Problem, groups: np.ndarray) -> torch.Tensor:
        """Groups as numbers; those that are not known are read off standardised features."""
        if groups.ndim > 1:
            raise InputError(
                f"ICDAClassifier takes one group per sample, got {groups.shape[1]}: RobustClassifier takes more."
            )
        codes = encode_known(groups)[0]
        if (codes >= 0).all():
            return torch.from_numpy(codes)
        if not isinstance(problem.features, torch.Tensor):
            raise InputError(
                "groups that are known for some samples only need features in memory, and these are on disk."
            )
        rows = BlockRows.of_arrays(problem.features.numpy(), problem.targets.numpy()).with_groups(groups)
        found = plan_by_groups(rows).noted(rows).treatment
        if found.attributes is None:
            raise InputError(" ".join(found.reasons))
        return found.attributes

    def _cross_fitted_strength(self, problem: Problem) -> Strength:
        seed = self.random_state or 0
        logits = cross_fitted_logits(problem, LossSettings("ce"), problem.targets, seed=seed, together=True)
        return cross_fitted_strength(logits, problem.targets)

    def _check_settings(self) -> None:
        choices: dict[str, Any] = {"loss": LOSSES, "balance": (None, *get_args(Balance))}
        choices |= {"through": get_args(Through), "strength": STRENGTHS}
        check_settings(self, ("lambda0", "beta", "C", "tol"), ("max_iter", "random_state"), **choices)
        if self.balance is None and self.through != "weights":
            raise InputError(
                f"through={self.through!r} says where a balance enters, but balance is None: set balance, or leave it out."
            )
        if self.balance == "strength" and self.through != "weights":
            raise InputError(
                f'balance="strength" weighs single samples and has no groups to balance through={self.through!r}: use '
                'through="weights", or balance="contrast", which guesses groups.'
            )
