"""The prior within an attribute: its formula, its limits, and what it is for."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from icda.data import create_task
from icda.data.task import Batch
from icda.losses.icda import ICDALoss
from icda.methods import Setup, create_method
from icda.methods.group_prior import GroupPrior
from icda.models import create_model
from icda.models.base import FeatureClassifier, Output
from support import make_context

MODELS = {classes: FeatureClassifier(nn.Identity(), nn.Linear(4, classes)) for classes in (2, 3)}
COUNTS = torch.tensor([[30, 2], [5, 13]])  # (attribute, class)
DOMAINS = torch.tensor([0, 1, 0, 1])


def setup_of(counts, domains):
    groups = torch.ones(len(domains), dtype=torch.long)
    return Setup(
        counts.shape[1], 4, counts.sum(0), 1, int(counts.sum()), groups, group_domains=domains, domain_counts=counts
    )


def outputs(count, classes):
    return Output(torch.zeros(count, 4), torch.randn(count, classes, dtype=torch.float64))


def test_the_loss_is_that_of_a_loop_over_samples_and_classes():
    groups, targets, output = torch.randint(4, (12,)), torch.randint(2, (12,)), outputs(12, 2)
    found = GroupPrior(setup_of(COUNTS, DOMAINS)).loss(
        output, Batch(None, targets, groups, torch.arange(12)), make_context(MODELS[2])
    )
    total = 0.0
    for i in range(12):
        row, shares = COUNTS[int(DOMAINS[groups[i]])].tolist(), (COUNTS.sum(0) / COUNTS.sum()).tolist()
        adjusted = [float(output.logits[i, c]) + math.log(row[c] + 0.5 * 2 * shares[c]) for c in range(2)]
        total += math.log(sum(math.exp(z) for z in adjusted)) - adjusted[int(targets[i])]
    assert float(found) == pytest.approx(total / 12, abs=1e-6)


def test_an_attribute_that_tells_nothing_leaves_logit_adjustment():
    counts = torch.tensor([[8, 4, 2], [16, 8, 4]])
    method = GroupPrior(setup_of(counts, torch.tensor([0, 1])))
    targets, groups, output = torch.randint(3, (9,)), torch.randint(2, (9,)), outputs(9, 3)
    found = method.loss(output, Batch(None, targets, groups, torch.arange(9)), make_context(MODELS[3]))
    expected = F.cross_entropy(output.logits + counts.sum(0).double().log(), targets)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_the_counts_are_those_of_the_training_samples():
    task = create_task("digits_coloured")
    network = create_model("mlp", 2, task.input_shape)
    found = Setup.of(task, network, epochs=1).domain_counts
    colours = task.train.groups % 2
    expected = [[int(((colours == a) & (task.train.targets == c)).sum()) for c in range(2)] for a in range(2)]
    assert found.tolist() == expected
    assert Setup.of(task.without_groups(), network, epochs=1).domain_counts is None


def test_groups_that_tell_the_class_are_refused():
    setup = setup_of(torch.tensor([[5, 0], [0, 7]]), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="needs attributes that several classes share"):
        create_method("group_prior", setup)
    create_method("group_prior", replace(setup, domain_counts=torch.tensor([[5, 0], [1, 7]])))


def test_icdas_terms_can_be_added_and_their_options_need_them():
    setup = setup_of(COUNTS, DOMAINS)
    method = create_method("group_prior", setup, {"loss": "icda", "lambda0": 0.25})
    assert isinstance(method.criterion, ICDALoss)
    assert method.criterion.lambda0 == 0.25
    with pytest.raises(ValueError, match="lambda0: an option of ICDA's terms, which loss='la' leaves out"):
        create_method("group_prior", setup, {"lambda0": 0.25})
    with pytest.raises(ValueError, match=r"loss .*'focal'"):
        create_method("group_prior", setup, {"loss": "focal"})


def test_with_its_terms_switched_off_icda_is_the_plain_method():
    groups, targets, output = torch.randint(4, (12,)), torch.randint(2, (12,)), outputs(12, 2)
    batch, setup = Batch(None, targets, groups, torch.arange(12)), setup_of(COUNTS, DOMAINS)
    off = {"loss": "icda", "semantic": False, "counterfactual": False, "sample_margin": False}
    plain, silent = create_method("group_prior", setup), create_method("group_prior", setup, off)
    torch.testing.assert_close(
        silent.loss(output, batch, make_context(MODELS[2])),
        plain.loss(output, batch, make_context(MODELS[2])),
        rtol=0,
        atol=1e-6,
    )
