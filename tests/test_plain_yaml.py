"""YAML from outside: values, and no more of them than settings have."""

from __future__ import annotations

import time

import pytest

from icda.errors import InputError
from icda.plain_yaml import LONGEST, MOST, read_yaml

# Nine lists, each of nine times the one before: 9^9 values in 300 characters.
LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))


def test_aliases_that_multiply_are_refused_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(InputError, match=f"bomb.yaml stands for more than {MOST} values"):
        read_yaml(LAUGHS, "bomb.yaml")
    assert time.monotonic() - started < 5  # a check that it was not expanded, not a measurement of speed


def test_a_list_that_holds_itself_is_refused() -> None:
    with pytest.raises(InputError, match="stands for more than"):
        read_yaml("a: &a [*a]", "loop.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 5000, "cannot be read as YAML"),
        ("a: !!python/object/apply:os.system [ls]", "cannot be read as YAML"),
        ("day: 2020-99-99", "cannot be read as YAML"),
        ("x" * (LONGEST + 1), "expected settings of at most"),
    ],
)
def test_other_texts_that_are_no_settings_are_refused_in_a_sentence(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_yaml(text, "a.yaml")


def test_plain_aliases_are_read() -> None:
    assert read_yaml("a: &a {x: 1}\nb: *a\nc: [*a, *a]", "a.yaml") == {
        "a": {"x": 1},
        "b": {"x": 1},
        "c": [{"x": 1}] * 2,
    }
    assert read_yaml("", "a.yaml") is None
