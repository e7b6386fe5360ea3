"""Verdicts that do not depend on a draw: the same data give the same answer; a shortcut is named only if it stays one."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from icda.auditing.assessment import assess, confirmed
from icda.auditing.verdicts import Verdict, decide
from icda.cross_fit.flatness import Flatness
from icda.cross_fit.rules import needed_flatness
from icda.heads.blocks import BlockRows
from support import shortcut_data


def birds(samples=500, minority=0.05):
    X, y, _ = shortcut_data(samples, 1 - minority, 30, (8, 0.45), (4, 2.0), seed=3)
    return torch.from_numpy(((X - X.mean(0)) / X.std(0)).astype(np.float32)), torch.from_numpy(y)


@pytest.mark.parametrize("minority", [0.05, 0.5])
def test_neither_the_order_of_the_rows_nor_the_seed_changes_an_answer(minority):
    features, targets = birds(minority=minority)
    first = assess(BlockRows.of_memory(features, targets, 2))
    for seed in (1, 2):
        order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))
        other = assess(BlockRows.of_memory(features[order].contiguous(), targets[order], 2, seed=seed))
        assert other.verdicts == first.verdicts
        assert other.treatment.name == first.treatment.name
        if first.treatment.attributes is not None:
            assert torch.equal(other.treatment.attributes, first.treatment.attributes[order])


def test_a_shortcut_is_named_only_if_every_asking_names_it():
    def confirm(*answers):
        found = [{"shortcut": Verdict(answer, 0.9, ["why"], 0.5)} for answer in answers]
        return confirmed(found[0], iter(found[1:]))["shortcut"]

    assert confirm("no", "yes", "yes").answer == "no"
    assert confirm("cannot tell", "yes", "yes").answer == "cannot tell"
    assert confirm("yes", "yes", "yes").answer == "yes"
    unsettled = confirm("yes", "yes", "no")
    assert unsettled.answer == "cannot tell"
    assert "the 3. time" in unsettled.reasons[-1]


def test_hard_data_are_not_called_mislabelled():
    """Errors that lie a little too flat say little where classes are hard to tell apart; far too flat ones do."""
    hard = evidence_like(skill=0.5, flat=0.05)
    assert decide(hard)["label_noise"].answer == "cannot tell"
    assert "icda ask" in " ".join(decide(hard)["label_noise"].reasons)
    assert decide(evidence_like(skill=0.5, flat=0.6))["label_noise"].answer == "yes"
    assert decide(evidence_like(skill=0.8, flat=0.4))["label_noise"].answer == "yes"


def evidence_like(skill, flat):
    features, targets = birds()
    known = assess(BlockRows.of_memory(features, targets, 2)).evidence
    at = needed_flatness(skill) + flat
    sides = {"error_sureness": at / 2, "sure_errors": at / 2}
    accuracy = 0.5 + skill / 2
    return replace(known, balanced_accuracy=accuracy, accuracy=accuracy, sided=Flatness(0.0, 0.0, 0.1), **sides)
