from collections.abc import Callable
from typing import Any

from icda.report.results import Run
from icda.report.sections.overview import configuration, environment, headline, what_was_run


def test_what_was_run_leaves_out_what_is_unknown(run_of: Any) -> None:
    made = what_was_run(run_of(seed=0, class_counts=[500, 5], confusion=[[8, 2], [1, 9]]), 2)
    assert "<dt>Seed</dt><dd>0</dd>" in made
    assert "505 samples, 2 classes, the largest 100 times the smallest" in made
    assert "test split, 20 samples" in made
    assert "Data hash" not in made


def test_the_headline_names_the_worst_class_and_group(run_of: Any) -> None:
    metrics = {"accuracy": 0.7, "per_class_accuracy": [0.9, None, 0.5], "per_group_accuracy": {"dry": 0.4, "wet": None}}
    made = headline(run_of(metrics=metrics, class_names=["a", "b", "c"]), 2)
    assert (
        "70.0 % of the test samples are classified correctly, 50.0 % in the worst class (c) "
        "and 40.0 % in the worst group (dry)." in made
    )
    assert "interval" not in made  # nobody said how many samples that rests on


def test_an_interval_comes_with_its_rule_and_what_it_leaves_out(run_of: Any) -> None:
    metrics = {"accuracy": 0.85, "balanced_accuracy": 0.85, "per_class_accuracy": [0.8, 0.9]}
    made = headline(run_of(metrics=metrics, confusion=[[8, 2], [1, 9]]), 2)
    assert '<span class="interval">64.0 – 94.8 %</span>' in made
    assert "Wilson, bootstrap within classes or groups" in made
    assert "run several seeds" in made


def test_a_metric_we_do_not_know_is_shown_under_its_name(run_of: Any) -> None:
    made = headline(run_of(metrics={"my_score": 1.25, "few_accuracy": None}), 2)
    assert "<dt>my_score</dt>" in made
    assert "1.250" in made
    assert "Few-shot" not in made


def test_settings_that_were_not_set_are_left_out(run_of: Callable[..., Run]) -> None:
    made = configuration(run_of(config={"lr": 0.1, "clip": None, "options": {}, "seed": 0}), 2)
    assert "<code>lr</code>" in made
    assert "<code>seed</code>" in made
    assert "clip" not in made
    assert "options" not in made
    assert environment(run_of(environment={"commit": None}), 2) == ""
