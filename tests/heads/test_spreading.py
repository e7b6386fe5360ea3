"""Attributes known for some rows: what a head reads off the others, and how well it says it does."""

import numpy as np
import pytest
import torch

from icda.auditing.plan import plan_by_groups
from icda.heads.blocks import BlockRows, MemoryBlock
from icda.heads.spreading import ClassLogits, SpreadReader, reading_quality
from support import shortcut_data


def biased(count=1200, minority=0.06):
    """Two classes, a weak signal of the class and a strong one of an attribute that goes with it."""
    data = shortcut_data(count, 1 - minority, 60, (5, 0.5), (4, 1.5))
    features, targets, attribute = map(torch.from_numpy, data)
    features = features.float()
    return (features - features.mean(0)) / features.std(0, correction=0), targets, attribute


def spread(known, values):
    features, targets, _ = biased()
    rows = BlockRows.of_memory(features, targets, 2)
    reader = SpreadReader.of(rows, known, values, int(values.max()) + 1, ClassLogits.of(rows, 0.06))
    return reader, torch.cat([reader.read(chunk) for chunk in rows.reading.chunks(rows.places[0])])


def usual_and_unusual(attribute, targets, number):
    against = (attribute != targets).nonzero().flatten()
    return torch.cat([against[: number // 2], torch.arange(number // 2)]).unique()


def test_two_dozen_answers_tell_the_attribute_of_nearly_all_others():
    _, targets, attribute = biased()
    known = usual_and_unusual(attribute, targets, 24)
    reader, read = spread(known, attribute[known])
    assert (read == attribute).double().mean() > 0.97
    against = attribute != targets
    assert (read[against] == attribute[against]).double().mean() > 0.85
    assert reader.quality.low <= reader.quality.accuracy <= reader.quality.high


def test_a_slip_is_noticed_and_an_honest_answer_stands():
    _, targets, attribute = biased()
    known = usual_and_unusual(attribute, targets, 48)
    values = attribute[known].clone()
    values[3] = 1 - values[3]
    _, read = spread(known, values)
    assert read[known[3]] == attribute[known[3]]
    assert (read[known] == attribute[known]).double().mean() > 0.95


def test_answers_that_cannot_be_read_stand_as_they_are_and_the_reading_says_so():
    known = torch.arange(60)
    values = torch.randint(0, 2, (60,), generator=torch.Generator().manual_seed(1))
    reader, read = spread(known, values)
    assert torch.equal(read[known], values)
    assert reader.quality.low < 0.5
    assert reading_quality(torch.ones(8, dtype=torch.bool), torch.tensor([0, 1] * 4)).accuracy == 1
    assert reading_quality(torch.tensor([True, False] * 4), torch.tensor([0, 0, 1, 1] * 2)).accuracy == 0.5


def test_values_of_one_class_are_never_read_off_rows_of_another():
    _, targets, attribute = biased()
    known = usual_and_unusual(attribute, targets, 60)
    _, read = spread(known, (2 * targets + attribute)[known])
    assert torch.equal(read // 2, targets)


@pytest.mark.parametrize("number", [12, 200])
def test_what_is_known_of_all_rows_is_not_read_but_taken(number):
    features, targets, attribute = biased(number)
    rows = BlockRows.of_memory(features, targets, 2).with_groups(attribute.numpy())
    found = plan_by_groups(rows).noted(rows)
    assert torch.equal(found.treatment.attributes, attribute)


def test_rows_cut_into_blocks_are_read_alike():
    """The reading follows from a row's place, not from the block that holds it."""
    features, targets, attribute = biased()
    groups = np.full(len(targets), np.nan)
    known = usual_and_unusual(attribute, targets, 48).numpy()
    groups[known] = attribute.numpy()[known]
    whole = BlockRows.of_memory(features, targets, 2).with_groups(groups)
    wanted = plan_by_groups(whole).noted(whole).treatment
    parts = [
        MemoryBlock(features.numpy()[part], targets.numpy()[part], groups[part])
        for part in np.array_split(np.arange(len(targets)), 3)
    ]
    rows = BlockRows.gather(parts, groups=True)
    plan = plan_by_groups(rows)
    assert (rows.gathered(plan.reader.read) == wanted.attributes).double().mean() > 0.995
    assert plan.treatment.name == wanted.name == "group_prior"
