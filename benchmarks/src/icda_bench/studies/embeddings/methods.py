"""The rows of the table: what is fitted, and which hyper-parameters win on validation data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from icda.estimators.classifier import ICDAClassifier
from icda.estimators.meta_classifier import MetaICDAClassifier
from icda.heads.folds import PseudoGroups, contrast_groups
from icda.heads.problem import Problem
from icda_bench.studies.embeddings.sets import BiasedSet
from icda_bench.studies.features import FeaturePart, worst_group

Knows = Literal["labels", "groups", "metadata"]
BY_ACCURACY, BY_CLASS, BY_GROUP = "validation accuracy", "validation worst class", "validation worst group"
BY_METADATA = "cross-fitted metadata worst group"
# What C is chosen by; from labels alone by one rule and by the other, so that they can be compared.
RULES: dict[Knows, tuple[str, ...]] = {
    "labels": (BY_ACCURACY, BY_CLASS),
    "groups": (BY_GROUP,),
    "metadata": (BY_METADATA,),
}


@dataclass(frozen=True)
class HeadRow:
    """A method of the table: how it is made, and what it is given beside the labels.

    "labels": nothing. "groups": the attribute of training and validation samples. "metadata": that of metadata alone.
    """

    name: str
    title: str
    knows: Knows = "labels"
    options: dict[str, Any] = field(default_factory=dict)
    guess: Literal["errors", "contrast"] | None = None  # pseudo-groups, computed once for all rows that use them


STATISTICS = {"loss": "icda", "through": "statistics"}
PAPERS = {"prior": "class", "use_metadata": False, "class_margins": False}
ROWS = (
    HeadRow("ce", "cross entropy", options={"loss": "ce"}),
    HeadRow("la", "logit adjustment", options={"loss": "la"}),
    HeadRow("isda", "ISDA", options={"loss": "isda"}),
    HeadRow("risda", "RISDA", options={"loss": "risda"}),
    HeadRow("icda", "ICDA", options={"loss": "icda"}),
    HeadRow("icda_cross_fitted", "ICDA, cross-fitted strengths", options={"loss": "icda", "strength": "cross_fitted"}),
    HeadRow("ce_strength", "CE, strengths as weights", options={"loss": "ce", "balance": "strength"}),
    HeadRow("ce_errors", "CE, cross-fitted errors as groups", options={"loss": "ce"}, guess="errors"),
    HeadRow("icda_statistics", "ICDA, statistics balanced by contrast", "labels", STATISTICS, "contrast"),
    HeadRow(
        "ce_prior", "CE, prior over (class, contrast)", options={"loss": "ce", "through": "prior"}, guess="contrast"
    ),
    HeadRow("ce_contrast", "CE, contrast groups", options={"loss": "ce"}, guess="contrast"),
    HeadRow("icda_contrast", "ICDA, contrast groups", options={"loss": "icda"}, guess="contrast"),
    HeadRow("ce_groups", "CE, true groups", "groups", {"loss": "ce", "balance": "group"}),
    HeadRow("icda_groups", "ICDA, true groups", "groups", {"loss": "icda", "balance": "group"}),
    HeadRow("dfr", "DFR: CE on balanced metadata alone", "metadata"),
    HeadRow("meta_icda_paper", "Meta-ICDA, the paper's", "metadata", PAPERS),
    HeadRow("meta_icda", "Meta-ICDA, ours", "metadata"),
)


@dataclass
class Fitted:
    """A model, the C it was fitted with, and its score by each rule that may choose it."""

    model: Any
    C: float
    scores: dict[str, float]


class Bench:
    """One feature set and seed: fits rows of the table, computing pseudo-groups once."""

    def __init__(self, data: BiasedSet, seed: int) -> None:
        self.data, self.seed = data.standardised(), seed
        self._guesses: dict[tuple[str, float], PseudoGroups] = {}

    def attributes(self, row: HeadRow) -> Sequence[str | None]:
        """A row that is given nothing is fitted once, whatever groups it is judged by."""
        return (None,) if row.knows == "labels" else tuple(self.data.test.attributes)

    def fit(self, row: HeadRow, attribute: str | None) -> dict[str, Fitted]:
        """The best over C by each rule of the row. Validation data may know of groups only where the row does."""
        if row.knows == "metadata":
            assert attribute is not None
            choices = [self._fit_metadata(row, attribute, C) for C in self.data.inverse_decays]
        else:
            choices = [self._fit_training(row, attribute, C) for C in self.data.inverse_decays]
        return {rule: max(choices, key=lambda fitted: fitted.scores[rule]) for rule in RULES[row.knows]}

    def _fit_training(self, row: HeadRow, attribute: str | None, C: float) -> Fitted:
        train, validation = self.data.train, self.data.validation
        options = {"C": C, "random_state": self.seed, **row.options}
        groups = None if attribute is None else train.attributes[attribute]
        if row.guess is not None:
            guess = self._guess(row.guess, C)
            groups = (guess.attributes if options.get("through") == "prior" else guess.hurt).numpy()
            options["balance"] = "group"
        model = ICDAClassifier(**options).fit(train.features, train.targets, groups=groups)
        hits = model.predict(validation.features) == validation.targets
        if attribute is None:
            scores = {BY_ACCURACY: float(hits.mean()), BY_CLASS: worst_group(hits, validation.targets)}
            return Fitted(model, C, scores)
        return Fitted(model, C, {BY_GROUP: worst_group(hits, validation.groups(attribute))})

    def _guess(self, kind: str, C: float) -> PseudoGroups:
        """The same as ICDAClassifier(balance=kind) computes for itself."""
        if (kind, C) not in self._guesses:
            rounds = 0 if kind == "errors" else 4
            self._guesses[kind, C] = contrast_groups(self._problem(C), rounds=rounds, seed=self.seed)
        return self._guesses[kind, C]

    def _problem(self, C: float) -> Problem:
        train = self.data.train
        targets = torch.from_numpy(train.targets)
        features = torch.from_numpy(np.ascontiguousarray(train.features, dtype=np.float32))
        return Problem.of(features, targets, int(targets.max()) + 1, C)

    def _fit_metadata(self, row: HeadRow, attribute: str, C: float) -> Fitted:
        train, metadata = self.data.train, self.data.metadata
        if row.name == "dfr":
            return self._fit_dfr(attribute, C)
        model = MetaICDAClassifier(C=C, random_state=self.seed, **row.options)
        groups = metadata.attributes[attribute]
        model.fit(train.features, train.targets, metadata.features, metadata.targets, groups)
        return Fitted(model, C, {BY_METADATA: model.metadata_score_})

    def _fit_dfr(self, attribute: str, C: float) -> Fitted:
        """A head on group-balanced metadata alone (Kirichenko et al., ICLR 2023); C by two-fold cross-validation."""
        metadata = self.data.metadata
        groups = metadata.groups(attribute)

        def fitted(part: FeaturePart) -> ICDAClassifier:
            model = ICDAClassifier(loss="ce", C=C, balance="group")
            return model.fit(part.features, part.targets, groups=part.attributes[attribute])

        half = np.random.default_rng(self.seed).permutation(len(groups)) % 2
        hits = np.zeros(len(groups), dtype=bool)
        for side in (0, 1):
            judged = half == side
            hits[judged] = fitted(metadata.rows(~judged)).predict(metadata.features[judged]) == metadata.targets[judged]
        return Fitted(fitted(metadata), C, {BY_METADATA: worst_group(hits, groups)})

    def judge(self, model: Any, attribute: str) -> tuple[float, float]:
        """Accuracy and worst-group accuracy on the test part."""
        test = self.data.test
        hits = model.predict(test.features) == test.targets
        return float(hits.mean()), worst_group(hits, test.groups(attribute))
