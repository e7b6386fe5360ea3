"""YAML from outside: values, and nothing that grows or runs."""

import pytest

from icda.errors import InputError
from icda.settings import read_yaml

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
def test_texts_that_are_no_settings_are_refused_in_a_sentence(text: str, named: str) -> None:
    with pytest.raises(InputError, match=f"a.yaml .*{named}"):
        read_yaml(text, "a.yaml")


def test_an_empty_text_is_nothing() -> None:
    assert read_yaml("", "a.yaml") is None
