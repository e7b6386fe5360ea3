"""What the log says of numbers given to samples, against scikit-learn and counting by hand."""

import pytest
import torch
from sklearn.metrics import roc_auc_score

from icda.data.sources import ImageArray
from icda.data.task import Split
from icda.training import train
from icda.training.evaluation import auroc, describe_samples, minority
from support import short_run

TARGETS = torch.tensor([0, 0, 0, 0, 1, 1, 2])
CLEAN = torch.tensor([0, 0, 1, 0, 1, 0, 2])
GROUPS = torch.tensor([0, 0, 1, 0, 2, 2, 4])
VALUES = torch.tensor([0.5, 0.25, -1.0, float("nan"), 0.75, -0.5, 0.125])


def split(clean=True, groups=True):
    source = ImageArray(torch.zeros(7, 2, 2, 1, dtype=torch.uint8), (0.0,), (1.0,))
    return Split(source, torch.arange(7), TARGETS, GROUPS if groups else None, clean_targets=CLEAN if clean else None)


@pytest.mark.parametrize("seed", range(4))
def test_auroc_is_scikit_learns_ties_included(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 6, (50,), generator=generator).double()
    positive = torch.rand(50, generator=generator) < 0.3
    assert auroc(scores, positive) == pytest.approx(roc_auc_score(positive.numpy(), scores.numpy()), abs=1e-12)


def test_auroc_of_one_kind_alone_is_none():
    assert auroc(torch.ones(3), torch.ones(3, dtype=torch.bool)) is None


def test_means_and_areas_are_over_the_samples_that_have_a_number():
    found = describe_samples({"strength": VALUES}, split())
    assert found["strength_wrong_labels"] == pytest.approx((-1.0 - 0.5) / 2)
    assert found["strength_right_labels"] == pytest.approx((0.5 + 0.25 + 0.75 + 0.125) / 4)
    assert found["strength_auroc_wrong"] == 1.0
    assert found["strength_minority"] == -1.0
    assert found["strength_majority"] == pytest.approx((0.5 + 0.25 + 0.75 - 0.5 + 0.125) / 5)
    assert found["strength_auroc_minority"] == 0.0
    assert found["strength_large_classes"] == pytest.approx((0.5 + 0.25 - 1.0) / 3)
    assert found["strength_small_classes"] == 0.125


def test_what_a_task_does_not_know_is_left_out():
    assert set(describe_samples({"strength": VALUES}, split(clean=False, groups=False))) == {
        "strength_small_classes",
        "strength_large_classes",
    }
    assert describe_samples({}, split()) == {}


def test_the_minority_of_a_class_is_all_but_its_largest_group():
    assert minority(TARGETS, GROUPS).tolist() == [False, False, True, False, False, False, False]


def test_a_run_on_known_groups_logs_them_and_one_that_does_not_know_them_does_not(tmp_path):
    for attributes in ("known", "unknown"):
        options = {"lookahead": "head"}
        config = short_run(tmp_path / attributes, "meta_icda", options=options, epochs=1, attributes=attributes)
        (record,) = train(config)["history"]
        assert ("strength_auroc_minority" in record) == ("strength_by_group" in record) == (attributes == "known")
        assert "strength_auroc_wrong" not in record, "no label is wrong there"
