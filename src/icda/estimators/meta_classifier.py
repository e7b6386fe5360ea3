"""Meta-ICDA as a scikit-learn classifier: a small trusted set says how the large biased one is to be used."""

from collections.abc import Mapping
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin

from icda.errors import InputError
from icda.estimators.classifier import LOSSES
from icda.estimators.predictions import LinearPredictions
from icda.estimators.samples import (
    check_metadata,
    check_prior,
    check_samples,
    check_settings,
    check_weights,
    encode_classes,
    encode_groups,
    put_prior,
    solver_unit,
    warn_of_other_scale,
)
from icda.heads.meta import MetaHead, MetaSettings, StrengthsAs, fit_meta_head
from icda.heads.problem import LossName, LossSettings, Problem, rebalance
from icda.heads.spreading import reading_head
from icda.meta.strength_network import OUTPUTS, StrengthOutput

AUTO_BETAS = (0.1, 1.0, 5.0)  # the paper's, and sizes that can withdraw a sample where strengths have a sign


class MetaICDAClassifier(LinearPredictions, ClassifierMixin, BaseEstimator):
    """A linear classifier on fixed features that learns on metadata how to use its training data.

    Metadata are a few hundred samples whose labels and balance you trust, such as a validation set balanced over groups.
    Sample strengths, class margins and the metadata's share of the fit are learned so that heads do well on metadata they
    were not fitted to (`icda.heads.meta`). Where metadata come with groups, a head reads the group off the training samples
    too, and the prior term is that of classes given the group. With `prior="class", use_metadata=False,
    class_margins=False` this is the paper's Meta-ICDA, with the optimum of the head in place of one look-ahead step.

    Parameters
    ----------
    loss : {"icda", "ce", "la", "isda"}; only "icda" has margins that strengths can be.
    lambda0, beta, C : as in ICDAClassifier. beta="auto" tries 0.1, 1 and 5 and keeps the best by `metadata_score_`.
    strengths_as : {"margins", "weights"}; the paper adds beta * alpha_i to the other classes' logits; weights count a
        sample alpha_i times within its class.
    strength_output : {"sigmoid", "tanh", "linear"}; in (0, 1), or with a sign and the mean of each class at 0: a negative
        margin withdraws a sample, if `beta` has a size that can act, such as 5. Not with strengths_as="weights".
    prior : {"attribute", "class"}; "attribute" needs groups of the metadata, or attributes or log_prior of the training
        samples, and is "class" without them.
    use_metadata : whether the head is fitted to metadata too.
    class_margins : whether a margin for each class is learned.
    steps, learning_rate : of Adam on what is learned; the strength network takes a fifth of the rate.
    folds : parts of the metadata; heads are fitted to the others and judged on one.
    max_iter, tol : of L-BFGS in the last fit.
    random_state : seed of folds and strength network.
    class_weight : as in ICDAClassifier, for the training samples.

    Attributes
    ----------
    classes_, coef_, intercept_, n_iter_, n_features_in_ : as in ICDAClassifier.
    strengths_ : (N,) of the training samples.
    attributes_ : (N,) the group read off the training samples, or the given attribute: its place among the sorted groups.
    class_margins_ : (C,)
    beta_ : the margin that was used.
    metadata_share_ : of the metadata in the fit.
    metadata_score_ : accuracy on metadata, each sample by a head not fitted to it; of the worst group if there are
        groups. Choose `C` and the rest by it.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = MetaICDAClassifier(C=0.1, steps=2).fit(X[200:800] / 16, y[200:800], X[:200] / 16, y[:200])
    >>> bool(model.score(X[800:] / 16, y[800:]) > 0.85)
    True
    """

    def __init__(
        self,
        loss: LossName = "icda",
        *,
        lambda0: float = 0.5,
        beta: float | Literal["auto"] = 0.1,
        C: float = 1.0,
        strengths_as: StrengthsAs = "margins",
        prior: Literal["attribute", "class"] = "attribute",
        use_metadata: bool = True,
        class_margins: bool = True,
        steps: int = 30,
        learning_rate: float = 0.05,
        folds: int = 2,
        max_iter: int = 200,
        tol: float = 1e-4,
        random_state: int | None = 0,
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        strength_output: StrengthOutput = "sigmoid",
    ) -> None:
        self.loss = loss
        self.lambda0 = lambda0
        self.beta = beta
        self.C = C
        self.strengths_as = strengths_as
        self.prior = prior
        self.use_metadata = use_metadata
        self.class_margins = class_margins
        self.steps = steps
        self.learning_rate = learning_rate
        self.folds = folds
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.class_weight = class_weight
        self.strength_output = strength_output

    def fit(
        self,
        X: Any,
        y: Any,
        X_meta: Any,
        y_meta: Any,
        groups_meta: Any = None,
        sample_weight: Any = None,
        attributes: Any = None,
        log_prior: Any = None,
    ) -> Self:
        """Fit to training data and metadata; `groups_meta` (one entry per metadata sample) makes the worst group count.

        `attributes` (one entry per training sample) or `log_prior` (N, C) say the training samples' prior, as in
        `ICDAClassifier.fit`; then no attribute is read off the metadata's groups.
        """
        self._check_settings()
        self.__dict__.pop("attributes_", None)  # an earlier fit's
        X, y = check_samples(self, X, y)
        codes = encode_classes(self, y)
        X_meta, meta_codes = check_metadata(self, X_meta, y_meta, X.dtype)
        warn_of_other_scale(X, X_meta, "MetaICDAClassifier")
        scale = solver_unit(torch.from_numpy(np.concatenate([X, X_meta])))
        if scale != 1:
            X, X_meta = X / X.dtype.type(scale), X_meta / X.dtype.type(scale)
        metadata, labels = self._metadata(X_meta, torch.from_numpy(meta_codes), groups_meta, scale)
        has_prior = check_prior(self, attributes, log_prior, len(codes))
        if has_prior and self.prior == "class":
            raise InputError('prior="class" reads the class counts only: with attributes or log_prior use "attribute".')
        weights, used = check_weights(self, sample_weight, y, X.dtype)
        if not used.all():
            X, codes, weights = X[used], codes[used], weights[used]
        inverse_decay = self.C * scale**2
        problem = Problem.of(torch.from_numpy(X), torch.from_numpy(codes), len(self.classes_), inverse_decay, weights)
        if has_prior:
            problem = put_prior(self, problem, attributes, log_prior, used)
        elif self.prior == "attribute" and groups_meta is not None:
            problem = self._with_guessed_prior(problem, metadata, X, groups_meta)
        solution = self._learn(problem, metadata, labels, None if groups_meta is None else labels)
        self._keep(solution.head, scale)
        return self

    def _learn(
        self, problem: Problem, metadata: Problem, labels: torch.Tensor, groups: torch.Tensor | None
    ) -> MetaHead:
        """Fit with each beta that comes into question, and keep what was learned with the best on metadata."""
        found: list[tuple[float, float, MetaHead]] = []
        for beta in AUTO_BETAS if self.beta == "auto" else (float(self.beta),):
            settings = LossSettings(self.loss, self.lambda0, beta)
            solution = fit_meta_head(problem, metadata, labels, settings, self._meta_settings())
            found.append((_score(solution, metadata.targets, groups), beta, solution))
        self.metadata_score_, self.beta_, solution = max(found, key=lambda each: each[0])  # of equals the first
        self.strengths_, self.class_margins_ = solution.strengths.numpy(), solution.margins.numpy()
        self.metadata_share_ = solution.share
        return solution

    def _with_guessed_prior(self, problem: Problem, metadata: Problem, X: np.ndarray, groups_meta: Any) -> Problem:
        """The problem with the prior of the classes given the group that a head reads off each training sample."""
        groups = torch.from_numpy(np.unique(groups_meta, return_inverse=True)[1])
        reader = reading_head(metadata.features, metadata.targets, groups, metadata.num_classes, metadata.decay)
        attributes = reader.logits(torch.from_numpy(X)).argmax(1)
        self.attributes_ = attributes.numpy()
        return rebalance(problem, attributes, "prior")

    def _metadata(
        self, X_meta: np.ndarray, codes: torch.Tensor, groups_meta: Any, scale: float
    ) -> tuple[Problem, torch.Tensor]:
        """Metadata as a problem, and what counts equally in it."""
        missing = np.delete(self.classes_, codes.unique().numpy())
        if len(missing):
            raise InputError(
                f"y_meta holds no sample of class {', '.join(map(str, missing))}: metadata need every class."
            )
        labels = codes
        if groups_meta is not None:
            groups = torch.from_numpy(encode_groups(groups_meta, len(X_meta), "groups_meta"))
            labels = codes * (int(groups.max()) + 1) + groups
        counts = torch.unique(labels, return_counts=True)[1]
        if int(counts.min()) < self.folds:
            raise InputError(
                f"every class (and group) of the metadata needs at least folds={self.folds} samples, "
                f"one has {int(counts.min())}."
            )
        return Problem.of(torch.from_numpy(X_meta), codes, len(self.classes_), self.C * scale**2), labels

    def _meta_settings(self) -> MetaSettings:
        same = ("strengths_as", "strength_output", "use_metadata", "class_margins", "steps", "folds")
        return MetaSettings(
            **{name: getattr(self, name) for name in same},
            rate=self.learning_rate,
            network_rate=self.learning_rate / 5,
            last_max_iter=self.max_iter,
            last_tol=self.tol,
            seed=cast(int, self.random_state or 0),
        )

    def _check_settings(self) -> None:
        if isinstance(self.beta, str) and self.beta != "auto":
            raise InputError(f'beta is a number or "auto", got {self.beta!r}.')
        numbers = ("lambda0", "C", "learning_rate", "tol", *(() if self.beta == "auto" else ("beta",)))
        choices: dict[str, Any] = {"strengths_as": ("weights", "margins"), "prior": ("attribute", "class")}
        choices |= {"loss": [name for name in LOSSES if name != "risda"], "strength_output": OUTPUTS}
        whole, flags = ("steps", "folds", "max_iter", "random_state"), ("use_metadata", "class_margins")
        check_settings(self, numbers, whole, flags, **choices)
        if self.strengths_as == "weights" and self.strength_output != "sigmoid":
            raise InputError(
                f'strengths_as="weights" needs strengths that are positive: strength_output="sigmoid", got '
                f"{self.strength_output!r}. Signed strengths are margins."
            )
        if self.folds < 2 or self.steps < 0:
            raise InputError(f"folds must be at least 2 and steps not negative, got {self.folds} and {self.steps}.")


def _score(solution: MetaHead, targets: torch.Tensor, groups: torch.Tensor | None) -> float:
    """Accuracy on metadata by heads that were not fitted to the sample, in the worst of `groups` if there are any."""
    hits = (solution.metadata_logits.argmax(1) == targets).double()
    parts = [hits] if groups is None else [hits[groups == group] for group in torch.unique(groups)]
    return min(float(part.mean()) for part in parts)
