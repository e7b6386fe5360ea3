"""Groups that are known for all rows, or for some: what to do about them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from sklearn.metrics import mutual_info_score
from torch import Tensor

from icda.auditing.inputs import DECAY
from icda.auditing.treatment import Treatment
from icda.data.missing import encode_known
from icda.heads.blocks import NOTHING, AnyReader, BlockRows, GivenGroups, Reading, count_attributes
from icda.heads.dealing import Place
from icda.heads.spreading import ClassLogits, fit_spread_reader, gather_rows

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
    pairs = torch.stack([known[1], gather_rows(rows, known[0].numpy()).targets]).unique(dim=1)
    return all(len(part.unique()) == pairs.shape[1] for part in pairs)


def known_groups(place: Place, reading: Reading) -> Tensor:
    """Numbers of a block's rows whose group is known, and the groups: (2, M)."""
    codes = reading.group_codes(place)
    assert codes is not None
    places = (codes >= 0).nonzero().flatten()
    return torch.stack([places + place.start, codes[places]])
