"""A treatment put into a fit: what the sample said, said of all rows, in memory and in blocks alike."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from icda.auditing.assessment import Assessment
from icda.auditing.evidence import SAMPLES
from icda.auditing.groups import Grouping
from icda.auditing.inputs import DECAY
from icda.auditing.treatment import Treatment
from icda.heads.blocks import AnyReader, AttributePrior, AttributeReader, BlockProblem, BlockRows, RowChunk
from icda.heads.decay import MOST_NUMBERS, choose_decay
from icda.heads.folds import Cells, trust, trust_masses, trusted_heads
from icda.heads.problem import LossSettings, Problem
from icda.heads.pseudo_groups import fit_reader


def attribute_reader(assessment: Assessment) -> AttributeReader:
    """What the shortcut says of any row: as was found for the rows of the sample, by a head that learned it for others."""
    sample, values = assessment.sample, assessment.treatment.attributes
    assert values is not None
    codes, targets = values.unique(return_inverse=True)[1], sample.targets.unique(return_inverse=True)[1]
    decay = DECAY * sample.features.shape[1]
    head = fit_reader(sample.features, targets, codes, int(targets.max()) + 1, decay)
    return AttributeReader(head.weight, head.bias, sample.rows, codes)


def spread_treatment(assessment: Assessment, rows: BlockRows, decay: float) -> Treatment:
    """The treatment with the attributes or weights of all rows, which are in memory."""
    treatment = assessment.treatment
    if treatment.name == "shortcut_prior":
        return replace(treatment, attributes=rows.gathered(attribute_reader(assessment).read))
    if treatment.name == "trust":
        return replace(treatment, weights=rows.gathered(partial(trust, trusted_heads(rows, decay))))
    return treatment


def treated_problem(
    rows: BlockRows, grouping: Grouping, sample: RowChunk, settings: LossSettings, smoothing: float = 0.0
) -> tuple[BlockProblem, Treatment]:
    """Rows in blocks with a treatment put into them, and with the decay that serves the rows of the sample best."""
    treatment, reader = grouping.treatment, grouping.reader
    sample = sample._replace(features=sample.features.to(rows.dtype))
    problem = BlockProblem(rows, DECAY * rows.shape[1])
    small = Problem.plain(sample.features, sample.targets, rows.num_classes, problem.decay)
    if reader is not None:
        treatment = replace(treatment, attributes=reader.read(sample))
    if treatment.name == "trust":
        heads = trusted_heads(rows, problem.decay)
        counts = rows.total(Cells(rows.num_classes, trusted=heads).counts, rows.reading.folds).sum(0)
        masses, weights = partial(trust_masses, heads, float(counts.sum())), trust(heads, sample)
        problem = replace(problem, masses=masses, class_counts=counts)
        small = replace(small, weights=weights, statistics_weights=weights, class_counts=counts)
    elif treatment.name == "group_weights":
        assert reader is not None
        table = torch.where(grouping.counts > 0, 1 / ((grouping.counts > 0).sum() * grouping.counts), 0.0)
        counts, weights = (table * grouping.counts).sum(0), group_masses(reader, table, sample)[0]
        problem = replace(problem, masses=partial(group_masses, reader, table), class_counts=counts)
        small = replace(small, weights=weights, statistics_weights=weights, class_counts=counts)
    elif reader is not None:
        prior = AttributePrior.of(reader, rows, treatment.strength)
        problem, small = replace(problem, prior=prior), replace(small, log_prior=prior.added(sample))
    strata = treatment.strata(sample.targets, rows.num_classes)
    decay = chosen_decay(small, settings, strata, rows.shape[0], rows.reading.seed, smoothing)
    return replace(problem, decay=decay), treatment


def group_masses(reader: AnyReader, table: Tensor, chunk: RowChunk) -> Tensor:
    """What each row counts (1, n), by the `table` (K, C) of groups and classes."""
    return table[reader.read(chunk), chunk.targets].to(chunk.features)[None]


def chosen_decay(
    sample: Problem, settings: LossSettings, strata: Tensor, count: int, seed: int, smoothing: float = 0.0
) -> float:
    """The decay for `count` rows, with the C that serves the treated rows of the sample best: more rows need less.

    Where the rows of the sample have very many features, the decay stays as it is.
    """
    if sample.features.shape[0] * sample.features.shape[1] > MOST_NUMBERS:
        return sample.decay
    return choose_decay(sample, settings, strata, seed, smoothing).decay * min(1.0, SAMPLES / count)
