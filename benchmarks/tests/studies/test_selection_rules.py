"""The comparison of selection rules: what each takes, and what it is compared with."""

from dataclasses import replace

import pytest

from icda.training import TrainConfig
from icda_bench.rows import read_table
from icda_bench.studies import selection_rules
from icda_bench.studies.selection_rules import (
    ORACLE,
    RULES,
    Arguments,
    chosen_epoch,
    compare_rules,
    rule_rows,
    run,
    selection_table,
)

HISTORY = [
    {
        "validation_accuracy": accuracy,
        "validation_worst_class_accuracy": worst_class,
        "validation_worst_pseudo_group_accuracy": pseudo,
        "validation_worst_group_accuracy": group,
    }
    for accuracy, worst_class, pseudo, group in (
        (0.9, 0.1, None, 0.2),
        (0.8, 0.7, 0.3, 0.3),
        (0.7, 0.6, 0.5, 0.6),
        (0.7, 0.6, 0.4, 0.5),
    )
]


def test_each_rule_takes_the_epoch_of_its_own_highest_figure():
    assert [chosen_epoch(rule, HISTORY) for rule in RULES] == [3, 0, 1, 2, 2]


def test_the_distance_is_to_the_rule_that_is_told_the_groups():
    rows = {row["rule"]: row for row in rule_rows(HISTORY, [0.1, 0.25, 0.55, 0.6], begun=2)}
    assert rows[ORACLE]["below_oracle"] == 0
    assert rows["validation_accuracy"]["below_oracle"] == pytest.approx(0.45)
    assert rows["last"]["below_oracle"] == pytest.approx(-0.05), "chance may put another rule above the oracle"
    assert rows["validation_worst_class"]["epoch"] == 3


@pytest.mark.parametrize("method", ["cross_entropy", "xrm"])
def test_one_training_answers_for_all_rules(method, tmp_path):
    settings = {"task": "digits_coloured", "model": "mlp", "epochs": 2, "batch_size": 200}
    rule = "validation_worst_pseudo_group"
    rows = compare_rules(TrainConfig(method=method, selection=rule, out=str(tmp_path), **settings))
    assert [row["rule"] for row in rows] == list(RULES)
    first = 1 if method == "xrm" else 0  # the epochs of the first stage are no candidates
    assert all(first <= row["epoch"] <= first + 1 for row in rows)
    assert rows[0]["epoch"] == first + 1


def test_the_table_has_the_means_over_methods_and_seeds():
    runs = [*rule_rows(HISTORY, [0.1, 0.2, 0.5, 0.6], 0), *rule_rows(HISTORY, [0.3, 0.2, 0.7, 0.6], 0)]
    rows = [{"task": "digits_coloured", **row} for row in runs]
    lines = selection_table(rows).splitlines()
    (line,) = [line for line in lines if "validation_accuracy" in line]
    assert line == "| digits_coloured | validation_accuracy | 20.0 | 40.0 | 2 |"


def test_a_name_that_table_6_does_not_have_is_refused(tmp_path):
    with pytest.raises(ValueError, match="icda bench selection has no task 'cifar10'"):
        run(Arguments(tasks=("cifar10",), out=tmp_path))


def test_the_command_writes_a_row_for_each_rule_of_each_run_and_makes_none_twice(tmp_path, monkeypatch):
    asked: list[tuple[str, str, int]] = []

    def compared(config: TrainConfig) -> list[dict[str, object]]:
        asked.append((config.task, config.method, config.seed))
        assert (config.attributes, config.selection) == ("known", "validation_worst_pseudo_group")
        return rule_rows(HISTORY, [0.1, 0.2, 0.5, 0.6], 0)

    monkeypatch.setattr(selection_rules, "compare_rules", compared)
    path = tmp_path / "selection.csv"
    options = Arguments(methods=("icda",), tasks=("digits_coloured",), seeds=1, ledger=path, out=tmp_path)
    run(options)
    before = path.read_text()
    run(replace(options, seeds=2))
    assert asked == [("digits_coloured", "icda", 0), ("digits_coloured", "icda", 1)]
    assert path.read_text().startswith(before), "earlier rows keep their machine"
    assert [row["seed"] for row in read_table(path)] == ["0"] * len(RULES) + ["1"] * len(RULES)


def test_several_tasks_are_also_shown_together():
    runs = {"digits_coloured": [0.1, 0.2, 0.5, 0.6], "waterbirds": [0.3, 0.2, 0.9, 0.6]}
    rows = [{"task": task, **row} for task, seen in runs.items() for row in rule_rows(HISTORY, seen, 0)]
    assert "| all | last | 60.0 | 10.0 | 2 |" in selection_table(rows).splitlines()
