"""Settings are checked against their annotations, and YAML is read without aliases."""

from typing import Any, Literal

import numpy as np
import pytest

from icda.errors import InputError
from icda.losses import ICDALoss, RISDALoss
from icda.methods.create import option_names
from icda.ranges import COUNTABLE, NotNegative, OpenShare, Positive, PositiveInt, Share, ShareBelowOne
from icda.registry import UnknownNameError
from icda.settings import check, check_names, checked, option_kinds, read_yaml


@pytest.mark.parametrize(
    ("kind", "taken", "refused"),
    [
        (Positive, [1, 0.5, np.float32(2)], [0, -1, float("inf"), float("nan"), 10**400, True, "1", None]),
        (NotNegative | None, [0, None], [-1, "x"]),
        (Share, [0, 1], [-0.1, 1.1]),
        (ShareBelowOne, [0], [1]),
        (OpenShare, [0.5], [0, 1]),
        (PositiveInt, [1, np.int64(3)], [0, 1.0, True, COUNTABLE + 1]),
        (int, [-3, COUNTABLE], [COUNTABLE + 1, 2.5]),
        (bool, [True], [1, "yes"]),
        (Literal["a", "b"], ["a"], ["c", None, 3]),
        (tuple[Share, ...], [(0.5, 1)], [(0.5, 2), [0.5]]),
    ],
)
def test_an_annotation_says_which_values_are_taken(kind, taken, refused):
    for value in taken:
        check({"setting": value}, {"setting": kind})
    for value in refused:
        with pytest.raises(InputError, match=r"^here: setting.* must be .*got "):
            check({"setting": value}, {"setting": kind}, "here: ")


def test_a_choice_misspelt_is_met_with_the_nearest_and_so_is_a_name():
    with pytest.raises(InputError, match="did you mean 'cosine'"):
        check({"schedule": "cosin"}, {"schedule": Literal["step", "cosine"]})
    with pytest.raises(UnknownNameError, match="did you mean 'epochs'"):
        check_names({"epoch": 3}, ["epochs"], "a file", "setting")


def test_options_that_are_passed_on_are_known_with_their_types():
    for loss, own in ((ICDALoss, {"beta", "semantic"}), (RISDALoss, {"mean_strength", "head_classes"})):
        assert {*own, "lambda0", "covariance", "rank", "shrinkage", "reduction"} <= option_kinds(loss).keys()
    assert "shrinkage" in option_names(ICDALoss)
    assert "prior" not in option_names(ICDALoss), "a tensor cannot be typed in a command"


def test_arguments_stop_where_nothing_is_passed_on_and_each_constructor_checks_once():
    class Base:
        def __init__(self, size: int, *, rate: Positive = 0.5, **rest: Any) -> None: ...

    class Closed(Base):
        def __init__(self, size: int, *, beta: float = 0.1) -> None: ...

    class Open(Base):
        @checked
        def __init__(self, size: int, *, beta: Share = 0.1, **options: Any) -> None:
            super().__init__(size, **options)

    assert list(option_kinds(Closed)) == ["beta"]
    assert list(option_kinds(Open)) == ["beta", "rate"]
    Open(3, beta=1.0, rate=2.0)
    for options in ({"beta": 2.0}, {"rate": -1.0}):
        with pytest.raises(InputError, match=next(iter(options))):
            Open(3, **options)


# Nine lists, each of nine times the one before: 9^9 values in 300 characters.
LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (LAUGHS, "aliases"),
        ("a: &a [*a]", "aliases"),
        ("[" * 5000, "YAML"),
        ("a: !!python/object/apply:os.system [ls]", "YAML"),
        ("day: 2020-99-99", "YAML"),
    ],
)
def test_texts_that_are_no_settings_are_refused_in_a_sentence(text, named):
    with pytest.raises(InputError, match=f"a.yaml .*{named}"):
        read_yaml(text, "a.yaml")


def test_an_empty_text_is_nothing():
    assert read_yaml("", "a.yaml") is None
