from __future__ import annotations

import inspect
from typing import Any

import pytest

from icda.losses import LOSSES, ICDALoss, RISDALoss
from icda.methods.create import check_option_types, option_names
from icda.signature import full_signature

SHARED = ["lambda0", "covariance", "rank", "forgetting", "shrinkage", "reduction"]


def test_a_loss_shows_its_own_arguments_and_those_it_passes_on() -> None:
    for loss, own in ((ICDALoss, ["beta", "semantic", "prior"]), (RISDALoss, ["mean_strength", "head_classes"])):
        parameters = inspect.signature(loss).parameters
        assert list(parameters)[:3] == ["num_classes", "feature_dim", "class_counts"]
        assert {*own, *SHARED} <= set(parameters)
        assert parameters["rank"].default == 16


@pytest.mark.parametrize("name", list(LOSSES))
def test_what_a_loss_shows_is_what_it_takes(name: str) -> None:
    loss = LOSSES.get(name)
    parameters = inspect.signature(loss).parameters.values()
    assert all(each.kind is not each.VAR_KEYWORD for each in parameters)
    defaults = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    loss(2, 3, class_counts=[3, 1], **defaults)
    with pytest.raises(TypeError, match="unexpected keyword argument 'lambda1'"):
        loss(2, 3, class_counts=[3, 1], lambda1=0.5)


def test_options_that_are_passed_on_keep_their_types() -> None:
    assert "shrinkage" in option_names(ICDALoss)
    assert "prior" not in option_names(ICDALoss), "a tensor cannot be typed in a command"
    for option, value in (("rank", 2.5), ("shrinkage", "much")):
        with pytest.raises(ValueError, match=f"option {option} of method 'icda' must be a"):
            check_option_types("icda", {option: value})


def test_arguments_stop_where_nothing_is_passed_on() -> None:
    class Base:
        def __init__(self, size: int, *, rate: float = 0.5, **rest: Any) -> None: ...

    class Closed(Base):
        def __init__(self, size: int, *, beta: float = 0.1) -> None: ...

    class Open(Base):
        def __init__(self, size: int, *, rate: float = 0.1, **options: Any) -> None: ...

    assert list(full_signature(Closed).parameters) == ["size", "beta"]
    assert list(full_signature(Open).parameters) == ["size", "rate", "rest"]
    assert full_signature(Open).parameters["rate"].default == 0.1
