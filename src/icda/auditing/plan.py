"""A treatment put into a fit: what the sample or given groups say, said of all rows, in memory and in blocks alike."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from sklearn.metrics import mutual_info_score
from torch import Tensor

from icda.auditing.assessment import Assessment
from icda.auditing.evidence import SAMPLES
from icda.auditing.inputs import DECAY
from icda.auditing.treatment import Treatment
from icda.data.missing import encode_known
from icda.heads.blocks import NOTHING, BlockProblem, BlockRows, Reading, RowChunk
from icda.heads.cross_fit import MOST_NUMBERS, choose_decay
from icda.heads.dealing import Place
from icda.heads.folds import Cells, trust, trust_masses, trusted_heads
from icda.heads.problem import LossSettings, Problem
from icda.heads.spreading import (
    AnyReader,
    AttributePrior,
    AttributeReader,
    ClassLogits,
    GivenGroups,
    count_attributes,
    fit_reader,
    fit_spread_reader,
)

ENOUGH = 25  # samples of a class and a joint value, on average
GIVEN = "Groups were given, so nothing was guessed."
TOGETHER = (
    "There each group goes with one class only and says nothing that the label does not: nothing is done about it. Name "
    "the group of samples that are unusual for their class (icda.ask chooses some)."
)


@dataclass(frozen=True)
class Grouping:
    """What to do, how each row's group is read (None: not at all), and how many rows each group and class has (K, C)."""

    treatment: Treatment
    reader: AnyReader | None = None
    counts: Tensor = NOTHING


def find_groups(rows: BlockRows, shown: ClassLogits | None = None) -> Grouping:
    """The prior of the groups or, where each group holds one class, the same mass for each.

    Groups that are known for some rows are read off the others first (`icda.heads.spreading`), with class logits that may
    be `shown` already.
    """
    assert rows.reading.groups is not None
    names = [str(name) for name in rows.reading.groups]
    number, reasons = len(names), [GIVEN]
    reader: AnyReader = GivenGroups(number)
    known = torch.cat(list(rows.each(known_groups)), 1)
    if known.shape[1] < rows.shape[0]:
        known_share = f"The group is known for {known.shape[1]} of {rows.shape[0]} samples"
        if number < 2:
            why = f"{known_share}, and is the same for all of them: nothing is done about it."
            return Grouping(Treatment("logit_adjustment", [why], values=names))
        if _goes_with_class(rows, known):
            return Grouping(Treatment("logit_adjustment", [f"{known_share}. {TOGETHER}"], values=names))
        shown = shown or ClassLogits.of(rows, DECAY * rows.shape[1])
        reader = fit_spread_reader(rows, known[0], known[1], number, shown)
        reasons = [f"{known_share} and was read off the others by a head: {reader.quality}."]
    counts: Tensor = rows.total(count_attributes, reader, rows.num_classes)
    if bool(((counts > 0).sum(1) <= 1).all()):
        # log P(y | group) would say the label, and nothing would be left to learn.
        reasons.append("Each group holds one class.")
        return Grouping(Treatment("group_weights", reasons, values=names), reader, counts)
    return Grouping(Treatment("group_prior", reasons, values=names), reader, counts)


def group_treatment(rows: BlockRows, groups: np.ndarray, shown: ClassLogits | None = None) -> Treatment:
    """What to do about groups (N,), or several attributes (N, M), of rows in memory; some may be missing."""
    place, columns = rows.places[0], groups.reshape(len(groups), -1).T
    found = []
    for column in columns:
        own = replace(place.block, given=column, chunks={})
        reading = replace(rows.reading, groups=encode_known(column)[1])
        known = replace(rows, places=[replace(place, block=own)], reading=reading)
        grouping = find_groups(known, shown)
        attributes = None if grouping.reader is None else known.gathered(grouping.reader.read)
        found.append(replace(grouping.treatment, attributes=attributes))
    return found[0] if len(found) == 1 else joined(found, torch.from_numpy(place.block.targets), rows.num_classes)


def joined(found: list[Treatment], targets: Tensor, num_classes: int) -> Treatment:
    """The product of several attributes where a pair of class and value has `ENOUGH` samples on average; else the one that
    tells most of the class."""
    usable = [one for one in found if one.name == "group_prior" and one.attributes is not None and one.values]
    if not usable:
        return found[0]
    product, names = torch.zeros_like(targets), [""]
    for one in usable:
        assert one.attributes is not None
        assert one.values is not None
        product = product * len(one.values) + one.attributes
        names = [f"{name} {value}".strip() for name in names for value in one.values]
    if len(targets) >= ENOUGH * num_classes * len(names):
        reasons = [reason for one in usable for reason in one.reasons]
        return Treatment("group_prior", reasons, attributes=product, values=names)
    best = max(usable, key=lambda one: mutual_info_score(one.attributes, targets))
    which = (
        f"Of {len(found)} attributes, too many for {len(targets)} samples, the one tied most to the class was taken."
    )
    return replace(best, reasons=[which, *best.reasons])


def _goes_with_class(rows: BlockRows, known: Tensor) -> bool:
    """Whether each known group goes with one class, and each class with one group."""
    pairs = torch.stack([known[1], rows.taken(known[0].numpy()).targets]).unique(dim=1)
    return all(len(part.unique()) == pairs.shape[1] for part in pairs)


def known_groups(place: Place, reading: Reading) -> Tensor:
    """Numbers of a block's rows whose group is known, and the groups: (2, M)."""
    codes = reading.group_codes(place)
    assert codes is not None
    places = (codes >= 0).nonzero().flatten()
    return torch.stack([places + place.start, codes[places]])


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
