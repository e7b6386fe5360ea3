from typing import Any

import pytest

from icda.report import sections
from icda.report.page import RUN_SECTIONS

BARE = {"task": "waterbirds", "method": "icda"}


@pytest.mark.parametrize("part", [part for part in RUN_SECTIONS if part is not sections.what_was_run])
@pytest.mark.parametrize(
    "empty", [{}, {"metrics": {}, "config": {}, "environment": {}, "history": [], "confusion": []}]
)
def test_a_section_without_data_is_left_out(part: Any, empty: dict[str, Any]) -> None:
    assert part({**BARE, **empty}, 2) == ""


def test_what_was_run_leaves_out_what_is_unknown() -> None:
    made = sections.what_was_run({**BARE, "seed": 0, "class_counts": [500, 5]}, 2)
    assert "<dt>Seed</dt><dd>0</dd>" in made
    assert "505 samples, 2 classes, the largest 100 times the smallest" in made
    assert "Data hash" not in made


def test_the_headline_names_the_worst_class_and_group() -> None:
    metrics = {
        "accuracy": 0.7,
        "per_class_accuracy": [0.9, None, 0.5],
        "per_group_accuracy": {"dry": 0.4, "wet": None},
    }
    made = sections.headline({**BARE, "metrics": metrics, "class_names": ["a", "b", "c"]}, 2)
    assert (
        "70.0 % of the test samples are classified correctly, 50.0 % in the worst class (c) "
        "and 40.0 % in the worst group (dry)." in made
    )


def test_a_metric_we_do_not_know_is_shown_under_its_name() -> None:
    made = sections.headline({**BARE, "metrics": {"my_score": 1.25, "few_accuracy": None}}, 2)
    assert "<dt>my_score</dt>" in made
    assert "1.250" in made
    assert "Few-shot" not in made


def test_an_absent_class_says_so_and_has_no_bar() -> None:
    made = sections.per_class({**BARE, "metrics": {"per_class_accuracy": [0.5, None]}, "class_counts": [7]}, 2)
    assert made.count("<svg") == 1
    assert "no sample in this split" in made


def test_many_classes_show_the_worst_first_and_all_on_demand() -> None:
    accuracies = [i / 100 for i in range(100)][::-1]
    made = sections.per_class({**BARE, "metrics": {"per_class_accuracy": accuracies}}, 2)
    assert "The 15 worst of 100 classes" in made
    assert made.count("<svg") == 115
    assert made.index(">99<") < made.index(">98<")


def test_small_confusion_is_a_matrix_and_a_large_one_a_list_of_mistakes() -> None:
    small = sections.confusion({**BARE, "confusion": [[3, 1], [0, 0]]}, 2)
    assert '<span class="shade right" style="--share: 0.750">3</span>' in small
    large = [[10 if i == j else 0 for j in range(50)] for i in range(50)]
    large[7][9] = 5
    made = sections.confusion({**BARE, "confusion": large}, 2)
    assert ">7</th>" in made
    assert "33.3 %" in made
    assert made.count("<tr>") == 2


def test_a_crooked_confusion_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got 2 rows of \[1, 2\]"):
        sections.confusion({**BARE, "confusion": [[1, 2], [3]]}, 2)


def test_the_curve_draws_only_what_the_history_has() -> None:
    history = [{"epoch": 1, "train_loss": 2.0, "train_accuracy": 0.3}, {"epoch": 2, "train_loss": float("nan")}]
    made = sections.learning_curve({**BARE, "history": history}, 2)
    assert made.count("<svg") == 2
    assert "validation" not in made


def test_the_comparison_needs_two_runs_and_says_common_things_once() -> None:
    run = {**BARE, "selection": "last", "metrics": {"accuracy": 0.5}}
    assert sections.comparison([run], 2) == ""
    made = sections.comparison([run, {**run, "method": "ce"}], 2)
    assert "task: waterbirds; checkpoint kept by: last</span>" in made
    assert '<th scope="row" class="name">ce</th>' in made
    assert "Task</th>" in sections.comparison([run, {**run, "task": "celeba"}], 2)
