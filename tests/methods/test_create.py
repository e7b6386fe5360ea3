from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch

from icda.losses import LOSSES, ICDALoss, RISDALoss
from icda.methods import METHODS, Method, Setup, create_method, method_names, method_needs, resolve_method
from icda.methods.create import method_class, option_names
from icda.methods.from_loss import LossMethod
from icda.registry import UnknownNameError

SETUP = Setup(
    num_classes=3,
    feature_dim=4,
    class_counts=torch.tensor([5, 3, 1]),
    epochs=2,
    num_samples=90,
    group_counts=torch.tensor([50, 40]),
    input_shape=(1, 8, 8),
    group_domains=torch.tensor([0, 1]),
)


def test_every_registered_name_makes_a_method() -> None:
    assert set(method_names()) == {*METHODS, *LOSSES}
    for name in method_names():
        method = create_method(name, SETUP)
        assert isinstance(method, Method), name
        assert sum(stage.epochs for stage in method.stages(10)) == 10, name


def test_options_reach_the_loss() -> None:
    method = create_method(
        "icda", SETUP, {"lambda0": 0.25, "beta": 0.0, "sample_margin": False, "covariance": "diagonal"}
    )
    assert isinstance(method, LossMethod)
    assert isinstance(method.criterion, ICDALoss)
    assert (method.criterion.lambda0, method.criterion.beta, method.criterion.sample_margin) == (0.25, 0.0, False)
    assert method.criterion.statistics.kind == "diagonal"
    assert method.criterion.class_counts is not None
    assert method.criterion.class_counts.tolist() == [5, 3, 1]


def test_options_of_an_inner_loss_are_known_too() -> None:
    method = create_method("risda_two_stage", SETUP, {"first_stage": 0.5, "mean_strength": 0.7})
    assert (method.first_stage, method.criterion.mean_strength) == (0.5, 0.7)
    names = option_names(method_class("risda_two_stage"))
    assert names[0] == "first_stage"
    assert set(names[1:]) == set(option_names(RISDALoss))
    assert "reduction" not in names


@pytest.mark.parametrize(
    ("method", "option", "meant"),
    [
        ("icda", "lamda0", "lambda0"),
        ("risda_two_stage", "first_stag", "first_stage"),
        ("risda", "head_class", "head_classes"),
    ],
)
def test_an_unknown_option_gives_the_nearest_one_and_all_known(method: str, option: str, meant: str) -> None:
    with pytest.raises(UnknownNameError, match=f"method '{method}' has no option '{option}': did you mean '{meant}'"):
        create_method(method, SETUP, {option: 1})


def test_a_method_without_options_says_that_it_has_none() -> None:
    with pytest.raises(UnknownNameError, match=r"method 'ce' has no option 'x': Known: none\."):
        create_method("ce", SETUP, {"x": 1})


def test_the_reduction_is_not_a_users_choice() -> None:
    with pytest.raises(UnknownNameError, match="no option 'reduction'"):
        create_method("icda", SETUP, {"reduction": "sum"})


@pytest.mark.parametrize(
    ("name", "full"),
    [("CE", "cross_entropy"), ("LA", "logit_adjustment"), ("logit-adjustment", "logit_adjustment"), ("Icda", "icda")],
)
def test_aliases_case_and_hyphens_lead_to_the_full_name(name: str, full: str) -> None:
    assert resolve_method(name) == full


@pytest.mark.parametrize(("typo", "meant"), [("icad", "icda"), ("cross_entopy", "cross_entropy")])
def test_an_unknown_method_gives_the_nearest_one_and_all_known(typo: str, meant: str) -> None:
    with pytest.raises(
        UnknownNameError, match=rf"unknown method '{typo}': did you mean '{meant}'\? Known: .*icda.*isda"
    ):
        create_method(typo, SETUP)


def test_a_name_like_no_other_gives_the_list_alone() -> None:
    with pytest.raises(UnknownNameError, match="unknown method 'qqqq': Known: "):
        resolve_method("qqqq")


def test_needs_are_those_of_the_class(register_method: Callable[[str, type[Any]], str]) -> None:
    class Needy(Method):
        needs: ClassVar[frozenset[str]] = frozenset({"groups"})

        def __init__(self, setup: Setup, *, temperature: float = 1.0) -> None:
            super().__init__()

    register_method("needy", Needy)
    assert method_needs("needy") == {"groups"}
    assert method_needs("icda") == frozenset()
    assert option_names(Needy) == ["temperature"]
    assert isinstance(create_method("needy", SETUP, {"temperature": 2.0}), Needy)
