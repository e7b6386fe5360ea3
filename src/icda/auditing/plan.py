"""The one way from rows to what a head is fitted to, in memory, over blocks and on Ray: what to do, said of all rows."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
import torch
from sklearn.metrics import mutual_info_score
from torch import Tensor

from icda.auditing.assessment import Assessment, assess, draw_sample
from icda.auditing.evidence import SAMPLES
from icda.auditing.inputs import DECAY
from icda.auditing.treatment import Treatment
from icda.heads.block_problem import BlockProblem, Weigh
from icda.heads.blocks import BlockRows, Reading, RowChunk
from icda.heads.cross_fit import GROUP_SMOOTHING, MOST_NUMBERS, choose_decay
from icda.heads.dealing import Place
from icda.heads.folds import trust, trusted_heads
from icda.heads.problem import LossSettings, Problem
from icda.heads.solver import Fittable
from icda.heads.spreading import (
    AnyReader,
    AttributePrior,
    AttributeReader,
    ClassLogits,
    GivenGroups,
    Noted,
    SpreadReader,
    count_attributes,
    reading_head,
)

ENOUGH = 25  # samples of a class and a joint value, on average
GIVEN = "Groups were given, so nothing was guessed."
TOGETHER = (
    "There each group goes with one class only and says nothing that the label does not: nothing is done about it. Name "
    "the group of samples that are unusual for their class (icda.ask chooses some)."
)


@dataclass(frozen=True)
class FitPlan:
    """What to do, and how it is said of any row: how much it counts, and by which attribute its prior goes.

    Without `weigh` the prior is that of the classes given the attribute; with it, attributes are no more than known.
    """

    treatment: Treatment
    reader: AnyReader | None = None
    weigh: Weigh | None = None
    assessment: Assessment | None = None  # that it follows from, if any

    def noted(self, rows: BlockRows) -> Self:
        """For rows in memory: what is said of each is worked out once, and stands in the treatment, too."""
        treatment, reader, weigh = self.treatment, self.reader, self.weigh
        if reader is not None:
            reader = Noted(rows.gathered(reader.read), reader.number)
            treatment = replace(treatment, attributes=reader.values)
        if weigh is not None:
            noted = Noted(rows.gathered(weigh))
            treatment, weigh = replace(treatment, weights=noted.values), noted.read
        return replace(self, treatment=treatment, reader=reader, weigh=weigh)

    def problem(self, rows: BlockRows, decay: float) -> Fittable:
        """The rows with the treatment in them; fit it with LA or ICDA."""
        weigh, prior = self.weigh, None
        if rows.weights is not None:
            weigh = partial(treated_weights, rows.weights, weigh)
        if self.reader is not None and self.weigh is None:
            prior = AttributePrior.of(self.reader, rows, self.treatment.strength)
        treated = BlockProblem(rows, decay, weigh, prior)
        return treated.part(rows.everything) if rows.in_memory else treated


def treated_problem(
    rows: BlockRows, plan: FitPlan, settings: LossSettings, decay: float | None = None
) -> tuple[Fittable, Treatment]:
    """What to fit the head of all rows to; without a `decay`, with the one that serves a sample of the treated rows best.

    In memory what the plan says of each row is worked out once, and the treatment that comes back has it; elsewhere it is
    worked out in each pass.
    """
    plan = plan.noted(rows) if rows.in_memory else plan
    problem = plan.problem(rows, DECAY * rows.shape[1] if decay is None else decay)
    if decay is not None:
        return problem, plan.treatment
    sample = draw_sample(rows, rows.reading.seed) if plan.assessment is None else plan.assessment.sample
    sample = sample._replace(features=sample.features.to(rows.dtype))
    strata = sample.targets  # what counts alike: classes, or classes and attributes
    if plan.reader is not None:
        strata = strata + rows.num_classes * plan.reader.read(sample)
    asked = problem.rows(sample.rows) if isinstance(problem, Problem) else problem.part(sample)
    smoothing = 0.0 if plan.treatment.values is None else GROUP_SMOOTHING
    decay = chosen_decay(asked, settings, strata, rows.shape[0], rows.reading.seed, smoothing)
    return replace(problem, decay=decay), plan.treatment


def chosen_decay(
    sample: Problem, settings: LossSettings, strata: Tensor, count: int, seed: int, smoothing: float = 0.0
) -> float:
    """The decay for `count` rows, with the C that serves the treated rows of the sample best: more rows need less.

    Where the rows of the sample have very many features, the decay stays as it is.
    """
    if sample.features.shape[0] * sample.features.shape[1] > MOST_NUMBERS:
        return sample.decay
    return choose_decay(sample, settings, strata, seed, smoothing).decay * min(1.0, SAMPLES / count)


def treated_weights(weights: Tensor, weigh: Weigh | None, chunk: RowChunk) -> Tensor:
    """The rows' own weights, of which `weights` (N,) are all, times what the treatment says."""
    own = weights[chunk.rows]
    return own if weigh is None else own * weigh(chunk)


def plan_rows(rows: BlockRows, assessment: Assessment | None = None) -> FitPlan:
    """By the groups that rows say, else by an audit, which an `assessment` of the same rows spares."""
    return plan_by_audit(rows, assessment) if rows.reading.groups is None else plan_by_groups(rows)


def plan_by_audit(rows: BlockRows, assessment: Assessment | None = None) -> FitPlan:
    """What the audit of a sample calls for; of rows that were not asked, a head says it that learned it from the sample."""
    assessment = assessment or assess(rows)
    treatment = assessment.treatment
    if treatment.name == "trust":
        heads = trusted_heads(rows, DECAY * rows.shape[1])
        return FitPlan(treatment, weigh=partial(trust, heads), assessment=assessment)
    reader = shortcut_reader(assessment) if treatment.name == "shortcut_prior" else None
    return FitPlan(treatment, reader, assessment=assessment)


def shortcut_reader(assessment: Assessment) -> AttributeReader:
    """What the shortcut says of any row: as was found for the rows of the sample, by a head that learned it for others."""
    sample, values = assessment.sample, assessment.treatment.attributes
    assert values is not None
    codes, targets = values.unique(return_inverse=True)[1], sample.targets.unique(return_inverse=True)[1]
    decay = DECAY * sample.features.shape[1]
    head = reading_head(sample.features, targets, codes, int(targets.max()) + 1, decay)
    return AttributeReader(head.weight, head.bias, sample.rows, codes)


def plan_by_groups(rows: BlockRows, shown: ClassLogits | None = None) -> FitPlan:
    """The prior of the groups that rows say or, where each group holds one class, the same mass for each.

    Groups that are known for some rows are read off the others first (`icda.heads.spreading`), with class logits that may
    be `shown` already.
    """
    assert rows.reading.groups is not None
    names = [str(name) for name in rows.reading.groups]
    number, reasons = len(names), [GIVEN]
    reader: AnyReader = GivenGroups(number)
    known = torch.cat(list(rows.each(rows_with_groups)), 1)
    if known.shape[1] < rows.shape[0]:
        known_share = f"The group is known for {known.shape[1]} of {rows.shape[0]} samples"
        if number < 2:
            why = f"{known_share}, and is the same for all of them: nothing is done about it."
            return FitPlan(Treatment("logit_adjustment", [why], values=names))
        if _goes_with_class(rows, known):
            return FitPlan(Treatment("logit_adjustment", [f"{known_share}. {TOGETHER}"], values=names))
        shown = shown or ClassLogits.of(rows, DECAY * rows.shape[1])
        reader = SpreadReader.of(rows, known[0], known[1], number, shown)
        reasons = [f"{known_share} and was read off the others by a head: {reader.quality}."]
    counts: Tensor = rows.total(count_attributes, reader, rows.num_classes, rows.weights)
    present = counts > 0
    if bool((present.sum(1) > 1).any()):
        return FitPlan(Treatment("group_prior", reasons, values=names), reader)
    # log P(y | group) would say the label, and nothing would be left to learn.
    table = torch.where(present, counts.sum() / (present.sum() * counts), 0.0)
    treatment = Treatment("group_weights", [*reasons, "Each group holds one class."], values=names)
    return FitPlan(treatment, reader, partial(group_weights, reader, table))


def plan_by_attributes(rows: BlockRows, groups: np.ndarray) -> FitPlan:
    """For several attributes (N, M) of rows in memory: their product, where a pair of class and value has `ENOUGH` samples
    on average; else the one that tells most of the class."""
    found = [plan_by_groups(known).noted(known) for known in map(rows.with_groups, groups.T)]
    targets = rows.everything.targets
    usable = [one for one in found if one.treatment.name == "group_prior"]
    if not usable or len(found) == 1:
        return found[0]
    product, names, reasons = torch.zeros_like(targets), [""], []
    for one in usable:
        values, attributes = one.treatment.values, one.treatment.attributes
        assert values is not None
        assert attributes is not None
        product = product * len(values) + attributes
        names = [f"{name} {value}".strip() for name in names for value in values]
        reasons += one.treatment.reasons
    if len(targets) >= ENOUGH * rows.num_classes * len(names):
        return FitPlan(Treatment("group_prior", reasons, values=names), Noted(product, len(names)))
    best = max(usable, key=lambda one: mutual_info_score(one.treatment.attributes, targets))
    which = (
        f"Of {len(found)} attributes, too many for {len(targets)} samples, the one tied most to the class was taken."
    )
    return replace(best, treatment=replace(best.treatment, reasons=[which, *best.treatment.reasons]))


def _goes_with_class(rows: BlockRows, known: Tensor) -> bool:
    """Whether each known group goes with one class, and each class with one group."""
    pairs = torch.stack([known[1], rows.taken(known[0].numpy()).targets]).unique(dim=1)
    return all(len(part.unique()) == pairs.shape[1] for part in pairs)


def rows_with_groups(place: Place, reading: Reading) -> Tensor:
    """Numbers of a block's rows whose group is known, and the groups: (2, M)."""
    codes = reading.group_codes(place)
    assert codes is not None
    places = (codes >= 0).nonzero().flatten()
    return torch.stack([places + place.start, codes[places]])


def group_weights(reader: AnyReader, table: Tensor, chunk: RowChunk) -> Tensor:
    """How much each row counts (n,), by the `table` (K, C) of groups and classes."""
    return table[reader.read(chunk), chunk.targets].to(chunk.features)
