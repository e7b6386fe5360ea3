import re

import pytest

from icda.data import TASKS
from icda.methods import method_names
from icda.methods.create import method_class, option_names
from icda.models import MODELS
from icda.selection import SELECTION_RULES

NAMES = {"tasks": list(TASKS), "methods": method_names(), "models": list(MODELS), "selection": list(SELECTION_RULES)}


def first_column(text):
    return set(re.findall(r"^│ (\S+)", text, flags=re.MULTILINE))


@pytest.mark.parametrize("columns", ["80", "160"])
@pytest.mark.parametrize("what", NAMES)
def test_every_name_is_listed_whole_with_a_word_about_it(what, columns, icda, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    answer = icda("list", what).worked()
    assert set(NAMES[what]) <= first_column(answer.out)
    for name in NAMES[what]:
        line = next(line for line in answer.out.splitlines() if line.startswith(f"│ {name} "))
        assert line.split("│")[2].strip(), name


def test_nothing_is_wider_than_the_terminal_and_no_option_is_cut(icda, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = icda("list").out
    assert max(map(len, text.splitlines())) <= 80
    assert {name for kind in NAMES.values() for name in kind} <= first_column(text)
    assert "small_cnn" not in icda("list", "selection").out, "one kind is listed alone"
    assert "metadata" in icda("list", "methods").text, "what a method needs"
    words = set(re.findall(r"\w+", text))
    for name in method_names():
        assert set(option_names(method_class(name))) <= words, name
