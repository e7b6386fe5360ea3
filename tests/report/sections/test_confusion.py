import re
from typing import Any

import pytest

from icda.report.sections.breakdown import confusion


def test_small_confusion_is_a_table_with_the_mistakes_listed(run_of: Any) -> None:
    made = confusion(run_of(confusion=[[3, 1], [0, 0]]), 2)
    assert "true 0, predicted 1\n1 samples, 25.0 % of the class" in made
    assert "The most frequent of 1 kinds of mistakes (1 samples in all)" in made


def test_large_confusion_is_a_picture_with_the_mistakes_listed(run_of: Any) -> None:
    large = [[10 if i == j else 0 for j in range(50)] for i in range(50)]
    large[7][9] = 5
    made = confusion(run_of(confusion=large), 2)
    assert 'class="pixels"' in made
    assert ">7</th>" in made
    assert "33.3 %" in made
    assert made.count("<tr") == 2


def test_every_class_has_its_most_frequent_mistakes_listed(run_of: Any) -> None:
    matrix = [[100 - i + j if i != j else 500 for j in range(30)] for i in range(30)]
    made = confusion(run_of(confusion=matrix), 2)
    rows = re.findall(r'<th scope="row" class="name">(\d+)</th><td class="name">(\d+)</td><td>(\d+)</td>', made)
    assert {true for true, *_ in rows} == {str(i) for i in range(30)}
    assert [int(count) for *_, count in rows] == sorted((int(count) for *_, count in rows), reverse=True)
    assert [predicted for true, predicted, _ in rows if true == "29"] == ["28", "27", "26"]
    assert "870 kinds of mistakes" in made


def test_no_mistake_makes_no_list(run_of: Any) -> None:
    assert "mistakes (" not in confusion(run_of(confusion=[[3, 0], [0, 2]]), 2)


def test_a_crooked_confusion_matrix_is_refused(run_of: Any) -> None:
    with pytest.raises(ValueError, match=r"got 2 rows of \[1, 2\]"):
        confusion(run_of(confusion=[[1, 2], [3]]), 2)
