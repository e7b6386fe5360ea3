"""No option of any method takes a number without sense, however the method is made."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
import torch

from icda.errors import InputError
from icda.losses import ICDALoss
from icda.methods import Setup, create_method, method_names
from icda.methods.create import _option_annotations, method_class, option_names
from icda.ranges import COUNTABLE

SETUP = Setup(
    num_classes=10,
    feature_dim=16,
    class_counts=torch.full((10,), 50),
    epochs=10,
    num_samples=500,
    group_counts=torch.full((20,), 25),
    batch_size=64,
    input_shape=(3, 32, 32),
    group_domains=torch.arange(20) // 10,
    domain_counts=torch.full((2, 10), 25),
)
# The exponent of a prior, and the weight of what TDE takes away: a negative one turns the correction round.
MAY_BE_NEGATIVE = {("logit_adjustment", "tau"), ("post_hoc_logit_adjustment", "tau"), ("tde", "alpha")}
SENSELESS: dict[type, list[float]] = {
    float: [float("nan"), float("inf"), -float("inf"), -1e30, 10**400],
    int: [-(10**30), 10**30, COUNTABLE + 1],
}


def numeric_options() -> list[tuple[str, str, type]]:
    found = []
    for name in method_names():
        annotations = _option_annotations(method_class(name))
        for option in option_names(method_class(name)):
            kind = str(annotations.get(option))
            if "float" in kind or "int" in kind:
                found.append((name, option, float if "float" in kind else int))
    return found


def test_there_are_as_many_options_as_the_methods_declare() -> None:
    assert len(numeric_options()) > 130


@pytest.mark.parametrize(("name", "option", "kind"), numeric_options())
def test_a_number_without_sense_is_refused_in_a_sentence(name: str, option: str, kind: type) -> None:
    is_list = "Sequence" in str(_option_annotations(method_class(name))[option])
    for value in SENSELESS[kind]:
        if (name, option) in MAY_BE_NEGATIVE and value == -1e30:
            continue
        with pytest.raises(InputError):
            create_method(name, SETUP, {option: [value] if is_list else value})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lambda0": float("nan")}, "lambda0 must be a finite number, got nan."),
        ({"lambda0": -1}, "lambda0 must not be negative, got -1."),
        ({"beta": float("inf")}, "beta must be a finite number, got inf."),
        ({"rank": 2**40}, f"rank must lie in [-{COUNTABLE}, {COUNTABLE}], got {2**40}."),
    ],
)
def test_a_loss_made_by_hand_is_checked_too(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        ICDALoss(3, 4, **options)


def test_copies_and_pickles_are_made_without_options() -> None:
    loss = ICDALoss(3, 4, lambda0=0.25)
    assert copy.deepcopy(loss).lambda0 == pickle.loads(pickle.dumps(loss)).lambda0 == 0.25
