"""A treatment put into a fit: what the sample said, said of all rows, in memory and in blocks alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from icda.auditing.assessment import Assessment, draw_sample
from icda.auditing.evidence import SAMPLES
from icda.auditing.groups import find_groups
from icda.auditing.inputs import DECAY
from icda.auditing.treatment import Treatment
from icda.heads.blocks import (
    AttributePrior,
    AttributeReader,
    BlockProblem,
    BlockRows,
    GroupMasses,
    Reading,
    RowChunk,
    read_attributes,
)
from icda.heads.dealing import Place
from icda.heads.decay import GROUP_SMOOTHING, MOST_NUMBERS, choose_decay
from icda.heads.folds import FoldHeads, trust, trusted_rows
from icda.heads.problem import LossSettings, Problem
from icda.heads.pseudo_groups import fit_reader
from icda.heads.solver import LinearHead, fit_head


@dataclass(frozen=True)
class TreatedFit:
    """A head for scaled features, what was done, with which decay, and how the shortcut is read where there is one."""

    head: LinearHead
    treatment: Treatment
    decay: float
    reader: AttributeReader | None = None
    points_to: Tensor | None = None  # (K,), the class that goes with each value of the attribute


def attribute_reader(assessment: Assessment) -> AttributeReader:
    """What the shortcut says of any row: as was found for the rows of the sample, by a head that learned it for others."""
    sample, values = assessment.sample, assessment.treatment.attributes
    assert values is not None
    codes, targets = values.unique(return_inverse=True)[1], sample.targets.unique(return_inverse=True)[1]
    decay = DECAY * sample.features.shape[1]
    head = fit_reader(sample.features, targets, codes, int(targets.max()) + 1, decay)
    return AttributeReader(head.weight, head.bias, sample.rows, codes)


def points_to(reader: AttributeReader, sample: RowChunk, num_classes: int) -> Tensor:
    """The class that most rows of the sample have with each value of the attribute (K,)."""
    table = torch.zeros(len(reader.bias), num_classes).index_put(
        (reader.values, sample.targets), torch.ones(len(sample.targets)), accumulate=True
    )
    return table.argmax(1)


def spread_treatment(treatment: Treatment, rows: BlockRows, assessment: Assessment, decay: float) -> Treatment:
    """The treatment with the attributes or weights of all rows, which are in memory."""
    if treatment.name == "shortcut_prior":
        parts = rows.each(read_attributes, attribute_reader(assessment))
        return replace(treatment, attributes=torch.cat([part for block in parts for part in block]))
    if treatment.name == "trust":
        parts = rows.each(read_trust, trusted_rows(rows, decay)[0].heads)
        return replace(treatment, weights=torch.cat([part for block in parts for part in block]))
    return treatment


def read_trust(place: Place, reading: Reading, heads: FoldHeads) -> list[Tensor]:
    return [trust(heads, chunk) for chunk in reading.chunks(place)]


def fit_blocks_treated(
    rows: BlockRows, assessment: Assessment, settings: LossSettings, max_iter: int = 200, tol: float = 1e-4
) -> TreatedFit:
    """The treatment that an assessment calls for, fitted to rows in blocks."""
    treatment, sample = assessment.treatment, assessment.sample
    features = sample.features.to(rows.dtype)
    problem = BlockProblem(rows, DECAY * rows.shape[1])
    small = Problem.plain(features, sample.targets, rows.num_classes, problem.decay)
    reader = towards = None
    if treatment.name == "shortcut_prior":
        reader = attribute_reader(assessment)
        towards = points_to(reader, sample, rows.num_classes)
        prior = AttributePrior.of(reader, rows, treatment.strength)
        problem = replace(problem, prior=prior)
        small = replace(small, log_prior=prior.table[reader.values])
        treatment = replace(treatment, attributes=reader.values)
    elif treatment.name == "trust":
        masses, counts = trusted_rows(rows, problem.decay)
        problem = replace(problem, masses=masses, class_counts=counts)
        weights = trust(masses.heads, sample._replace(features=features))
        small = replace(small, weights=weights, statistics_weights=weights, class_counts=counts)
    strata = treatment.strata(sample.targets, rows.num_classes)
    decay = chosen_decay(small, settings, strata, rows.shape[0], rows.reading.seed)
    head = fit_head(replace(problem, decay=decay), settings, max_iter, tol)
    return TreatedFit(head, treatment, decay, reader, towards)


def fit_blocks_grouped(rows: BlockRows, settings: LossSettings, max_iter: int = 200, tol: float = 1e-4) -> TreatedFit:
    """Groups that were given with the rows: their prior or, where each holds one class, the same mass for each."""
    grouping = find_groups(rows)
    treatment, reader, counts, sample = grouping.treatment, grouping.reader, grouping.counts, draw_sample(rows)
    problem = BlockProblem(rows, DECAY * rows.shape[1])
    features = sample.features.to(rows.dtype)
    small = Problem.plain(features, sample.targets, rows.num_classes, problem.decay)
    if reader is not None:
        treatment = replace(treatment, attributes=reader.read(sample._replace(features=features)))
    if treatment.name == "group_weights":
        assert reader is not None
        table = torch.where(counts > 0, 1 / ((counts > 0).sum() * counts), 0.0)
        weighed = (table * counts).sum(0)
        problem = replace(problem, masses=GroupMasses(reader, table), class_counts=weighed)
        weights = table[treatment.attributes, sample.targets].to(small.weights)
        small = replace(small, weights=weights, statistics_weights=weights, class_counts=weighed)
    elif treatment.name == "group_prior":
        assert reader is not None
        prior = AttributePrior.of(reader, rows, treatment.strength)
        problem, small = replace(problem, prior=prior), replace(small, log_prior=prior.table[treatment.attributes])
    strata = treatment.strata(sample.targets, rows.num_classes)
    decay = chosen_decay(small, settings, strata, rows.shape[0], rows.reading.seed, GROUP_SMOOTHING)
    return TreatedFit(fit_head(replace(problem, decay=decay), settings, max_iter, tol), treatment, decay)


def chosen_decay(
    sample: Problem, settings: LossSettings, strata: Tensor, count: int, seed: int, smoothing: float = 0.0
) -> float:
    """The decay for `count` rows, with the C that serves the treated rows of the sample best: more rows need less.

    Where the rows of the sample have very many features, the decay stays as it is.
    """
    if sample.features.shape[0] * sample.features.shape[1] > MOST_NUMBERS:
        return sample.decay
    return choose_decay(sample, settings, strata, seed, smoothing).decay * min(1.0, SAMPLES / count)
