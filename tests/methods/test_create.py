"""From names and options to methods; losses as methods."""

import inspect
import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from icda.data.task import Batch
from icda.losses import LOSSES, ICDALoss, RISDALoss
from icda.losses.ldam import LDAMLoss
from icda.methods import METHODS, Method, Setup, Stage, create_method, method_names, resolve_method
from icda.methods.create import method_class, option_names
from icda.methods.cross_fitted import CrossFittedMethod
from icda.models.base import Output
from icda.registry import UnknownNameError
from icda.settings import check, option_kinds
from support import make_batch, make_context

SETUP = Setup(
    num_classes=3,
    feature_dim=4,
    class_counts=torch.tensor([5, 3, 1]),
    epochs=2,
    num_samples=90,
    group_counts=torch.tensor([50, 40]),
    input_shape=(1, 8, 8),
    group_domains=torch.tensor([0, 1]),
    domain_counts=torch.tensor([[3, 2, 1], [2, 1, 0]]),
)


def test_every_registered_name_makes_a_method():
    assert set(method_names()) == {*METHODS, *LOSSES}
    for name in method_names():
        method = create_method(name, SETUP)
        assert isinstance(method, Method), name
        stages = method.stages(10)
        if isinstance(method, CrossFittedMethod):  # their networks come first, and the one that is kept trains in full
            stages = stages[1:]
        assert sum(stage.epochs for stage in stages) == 10, name


def test_options_reach_the_loss():
    method = create_method(
        "icda", SETUP, {"lambda0": 0.25, "beta": 0.0, "sample_margin": False, "covariance": "diagonal"}
    )
    assert isinstance(method.criterion, ICDALoss)
    assert (method.criterion.lambda0, method.criterion.beta, method.criterion.sample_margin) == (0.25, 0.0, False)
    assert method.criterion.statistics.kind == "diagonal"
    assert method.criterion.class_counts.tolist() == [5, 3, 1]


@pytest.mark.parametrize(
    ("name", "own", "inner"),
    [
        ("risda_two_stage", ["first_stage", "effective_beta"], RISDALoss),
        ("ldam_drw", ["start", "effective_beta"], LDAMLoss),
    ],
)
def test_options_of_an_inner_loss_are_known_too(name, own, inner):
    names = option_names(method_class(name))
    assert names[:2] == own
    assert set(names[2:]) == set(option_names(inner))
    assert "reduction" not in names
    option = option_names(inner)[0]
    method = create_method(name, SETUP, {own[0]: 0.5, option: 0.7})
    assert (getattr(method, own[0]), getattr(method.criterion, option)) == (0.5, 0.7)


@pytest.mark.parametrize(
    ("method", "option", "hint"),
    [
        ("icda", "lamda0", "did you mean 'lambda0'"),
        ("risda_two_stage", "first_stag", "did you mean 'first_stage'"),
        ("risda", "head_class", "did you mean 'head_classes'"),
        ("coral", "anneal_steps", "Known: gamma, sampling."),
        ("bbn", "power", "Known: none."),
        ("ce", "x", r"Known: label_smoothing\."),
        *(("icda", name, "") for name in ("reduction", "ignore_index")),  # no choice of a training's
    ],
)
def test_an_unknown_option_gives_the_nearest_one_and_all_known(method, option, hint):
    with pytest.raises(UnknownNameError, match=f"method '{method}' has no option '{option}': .*{hint}"):
        create_method(method, SETUP, {option: 1})


@pytest.mark.parametrize("name", ["bbn", "ifl"])
def test_a_context_that_draws_no_second_batch_is_refused(name):
    with pytest.raises(ValueError, match=rf"{name} draws a second batch each step: give the context a draw\(\)"):
        create_method(name, SETUP).step(make_batch(1), make_context())


@pytest.mark.parametrize(
    ("method", "option", "value"),
    [
        ("icda", "lambda0", "abc"),
        ("icda", "lambda0", True),
        ("icda", "lambda0", None),
        ("icda", "beta", [0.1]),
        ("icda", "rank", 2.5),
        ("icda", "rank", "1e1"),
        ("icda", "semantic", "off-ish"),
        ("dfr", "l1", "little"),
        ("ifl", "milestones", "0.5"),
        ("risda_two_stage", "mean_strength", "x"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_with_its_option(method, option, value):
    with pytest.raises(ValueError, match=rf"{option} must be .*got {re.escape(repr(value))}"):
        create_method(method, SETUP, {option: value})


def test_the_refusal_says_which_entry_of_a_list_is_meant_and_how_yaml_reads_a_number():
    with pytest.raises(ValueError, match=r"milestones\[1\] must be a valid number, got 'x'"):
        create_method("ifl", SETUP, {"milestones": [0.5, "x"]})
    with pytest.raises(ValueError, match=r"beta .*got '1e-3': YAML reads that as a text"):
        create_method("icda", SETUP, {"beta": "1e-3"})


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("icda", {"lambda0": 1, "beta": np.float32(0.5), "rank": np.int64(3), "covariance": "diagonal"}),
        ("dfr", {"l1": None}),
        ("ifl", {"milestones": [0.5, 1], "centre_weights": (0, 0.1, 0.2)}),
    ],
)
def test_values_of_a_fitting_type_are_taken(method, options):
    assert isinstance(create_method(method, SETUP, options), Method)


def test_every_default_is_of_its_own_options_type():
    for name in method_names():
        cls = method_class(name)
        for part in (cls, getattr(cls, "inner_loss", None) or cls):
            known = inspect.signature(part).parameters
            options = {key: known[key].default for key in option_names(cls) if key in known}
            check(options, option_kinds(cls))


def test_an_annotation_that_cannot_be_read_rules_nothing_out(register_method):
    class Foreign(Method):
        def __init__(self, setup: Setup, *, teacher: "NotThere" = None) -> None:  # noqa: F821
            super().__init__()

    assert isinstance(create_method(register_method("foreign", Foreign), SETUP, {"teacher": 3}), Foreign)


ALIASES = {
    "CE": "cross_entropy",
    "Icda": "icda",
    "LA": "logit_adjustment",
    "logit-adjustment": "logit_adjustment",
    "post-hoc-la": "post_hoc_logit_adjustment",
    "bilateral-branch-network": "bbn",
    "deep_coral": "coral",
    "GroupDRO": "group_dro",
    "learning_from_failure": "lff",
    "mentornet_pd": "self_paced",
    "mwn": "meta_weight_net",
    "RandAugment": "rand_aug",
    "upweighting": "uw",
    "v-rex": "v_rex",
    "vrex": "v_rex",
}


@pytest.mark.parametrize(("name", "full"), ALIASES.items())
def test_aliases_case_and_hyphens_lead_to_the_full_name(name, full):
    assert resolve_method(name) == full


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("icad", r"did you mean 'icda'\? "), ("cross_entopy", r"did you mean 'cross_entropy'\? "), ("qqqq", "")],
)
def test_an_unknown_method_gives_the_nearest_one_and_all_known(typo, meant):
    with pytest.raises(UnknownNameError, match=rf"'{typo}': {meant}Known: .*icda.*isda"):
        create_method(typo, SETUP)


DEFAULTS = {
    # those of DomainBed
    "coral": {"gamma": 1.0, "sampling": "domain_balanced"},
    "irm": {"penalty": 100.0, "anneal_steps": 500, "reset_optimizer": True, "sampling": "domain_balanced"},
    "ib_irm": {"penalty": 100.0, "ib": 100.0, "anneal_steps": 500, "reset_optimizer": True},
    "v_rex": {"penalty": 10.0, "anneal_steps": 500, "reset_optimizer": True},
    # as published
    "disturb_label": {"alpha": 0.1},
    "metasaug": {"start": 0.8, "statistics_rate": 0.1, "every": 1},
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_those_that_the_documentation_names(name):
    method = create_method(name, SETUP)
    assert {option: getattr(method, option) for option in DEFAULTS[name]} == DEFAULTS[name]


FIRST = partial(Stage, name="representation", restart=True)
SECOND = partial(Stage, restart=True)
BALANCED = {"trains": "head", "sampling": "class_balanced"}


@pytest.mark.parametrize(
    ("name", "options", "epochs", "stages"),
    [
        ("crt", {}, 10, [FIRST(9), SECOND(1, "classifier", reset_head=True, **BALANCED)]),
        ("lws", {}, 100, [FIRST(90), SECOND(10, "scales", **BALANCED)]),
        ("oltr", {"freeze_encoder": True}, 90, [FIRST(30), SECOND(60, "memory", **BALANCED)]),
        ("oltr", {}, 90, [FIRST(30), SECOND(60, "memory", sampling="class_balanced")]),
        ("dfr", {}, 50, [FIRST(49), SECOND(1, "head", trains="head", reset_head=True, split="validation")]),
        ("jtt", {}, 10, [Stage(2, "identification"), SECOND(8, "upweighted", sampling="own", reset_network=True)]),
        ("jtt", {"up_weight": 1}, 5, [Stage(1, "identification"), SECOND(4, "upweighted", reset_network=True)]),
        ("risda_two_stage", {}, 10, [Stage(8, "representation"), Stage(2, "head", trains="head")]),
        ("group_dro", {}, 7, [Stage(7, sampling="group_balanced")]),
        ("lisa", {}, 4, [Stage(4, sampling="group_balanced")]),
        ("domain_mix", {}, 4, [Stage(4, sampling="domain_balanced")]),
        ("uw", {}, 7, [Stage(7, sampling="group_balanced")]),
        ("uw", {"weighting": "loss"}, 7, [Stage(7)]),
    ],
)
def test_training_is_cut_into_its_stages(name, options, epochs, stages):
    assert create_method(name, SETUP, options).stages(epochs) == stages


@pytest.mark.parametrize("name", ["afr", "crt", "jtt", "lws", "oltr"])
@pytest.mark.parametrize(
    ("epochs", "share", "lengths"),
    [
        *((100, 0.9, [90, 10]), (10, 0.9, [9, 1]), (3, 0.9, [2, 1]), (2, 0.9, [1, 1]), (2, 0.01, [1, 1])),
        *((90, 1 / 3, [30, 60]), (50, 0.001, [1, 49]), (50, 0.999, [49, 1])),
    ],
)
def test_both_stages_have_their_share_and_one_epoch_at_least(name, epochs, share, lengths):
    stages = create_method(name, SETUP, {"first_stage": share}).stages(epochs)
    assert [stage.epochs for stage in stages] == lengths


@pytest.mark.parametrize(
    "name", ["crt", "dfr", "jtt", "post_hoc_logit_adjustment", "rand_aug", "risda_two_stage", "uw"]
)
def test_a_method_that_changes_something_else_trains_by_plain_cross_entropy(name):
    logits, targets = torch.randn(7, 3, dtype=torch.float64), torch.arange(7) % 3
    wanted = sum(float(row.exp().sum().log() - row[y]) for row, y in zip(logits, targets.tolist(), strict=True)) / 7
    batch = Batch(None, targets, None, targets)
    found = create_method(name, SETUP).loss(Output(logits, logits), batch, make_context())
    assert float(found) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("name", list(LOSSES))
def test_the_loss_of_a_method_is_the_loss_itself_at_the_progress_of_training(name):
    head, features = nn.Linear(4, 3), torch.randn(8, 4)
    batch = Batch(None, torch.arange(8) % 3, None, torch.arange(8))
    context = SimpleNamespace(head=head, progress=0.7)
    method, loss = create_method(name, SETUP), LOSSES.get(name)(3, 4, SETUP.class_counts)
    for _ in range(2):  # the second call sees the statistics of the first
        found = method.loss(Output(features, head(features)), batch, context)
        torch.testing.assert_close(found, loss(features, batch.targets, head, 0.7))


def _epoch(name):
    head, features = nn.Linear(4, 3), torch.randn(9, 4)
    batch = Batch(None, torch.arange(9) % 3, None, torch.arange(9))
    method = create_method(name, SETUP)
    context = SimpleNamespace(head=head, progress=0.5)
    method.loss(Output(features, head(features)), batch, context)
    method.on_epoch_end(context)
    return method.epoch_figures()


@pytest.mark.parametrize("name", ["isda", "risda", "icda"])
def test_a_loss_with_statistics_logs_mapped_variances_every_epoch(name):
    figures = _epoch(name)
    assert set(figures) == {"mapped_variance_own", "mapped_variance_unrelated"}
    assert all(isinstance(value, float) and value > 0 for value in figures.values())


def test_a_loss_without_statistics_logs_none():
    assert _epoch("cross_entropy") == {}
