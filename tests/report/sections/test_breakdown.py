import re
from typing import Any

import pytest

from icda.report.sections.breakdown import confusion, per_class, per_group


def test_an_absent_class_says_so_and_has_no_bar(run_of: Any) -> None:
    made = per_class(run_of(metrics={"per_class_accuracy": [0.5, None]}, class_counts=[7]), 2)
    assert made.count('class="bar"') == 1
    assert "no sample in this split" in made


def test_many_classes_come_worst_first_in_a_box_of_their_own(run_of: Any) -> None:
    accuracies = [i / 100 for i in range(100)][::-1]
    made = per_class(run_of(metrics={"per_class_accuracy": accuracies}), 2)
    assert "100 classes, worst first" in made
    assert made.count("<tr") == 101
    assert made.index(">99<") < made.index(">98<")
    assert 'class="tall"' in made


def test_rows_carry_their_filters_and_intervals(run_of: Any) -> None:
    metrics = {"per_class_accuracy": [0.8, 0.9], "per_group_accuracy": {"day": 0.5}}
    run = run_of(metrics=metrics, class_names=["cat", "dog"], confusion=[[8, 2], [1, 9]], group_samples=[10])
    classes, groups = per_class(run, 2), per_group(run, 2)
    assert '<tr data-class="c1"><th scope="row" class="name">dog</th>' in classes
    assert "<td>49 – 94</td>" in classes
    assert '<tr data-group="g0">' in groups
    assert "<td>24 – 76</td>" in groups


def test_a_long_tail_is_drawn_over_class_size_and_equal_classes_are_not(run_of: Any) -> None:
    metrics = {"per_class_accuracy": [0.5] * 6}
    assert 'class="point"' in per_class(run_of(metrics=metrics, class_counts=[100, 50, 20, 10, 5, 2]), 2)
    assert 'class="point"' not in per_class(run_of(metrics=metrics, class_counts=[10] * 6), 2)


def test_small_confusion_is_a_table_with_the_mistakes_listed(run_of: Any) -> None:
    made = confusion(run_of(confusion=[[3, 1], [0, 0]]), 2)
    assert "true 0, predicted 1\n1 samples, 25.0 % of the class" in made
    assert "The most frequent of 1 kinds of mistakes (1 samples in all)" in made
    assert "mistakes (" not in confusion(run_of(confusion=[[3, 0], [0, 2]]), 2)
    with pytest.raises(ValueError, match=r"got 2 rows of \[1, 2\]"):
        confusion(run_of(confusion=[[1, 2], [3]]), 2)


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
