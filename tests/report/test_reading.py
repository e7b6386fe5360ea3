"""Results read from folders, ledgers and dictionaries."""

import csv
import json

import pytest

from icda.report import comparison_table, read_runs
from icda.report.results import (
    Run,
    as_number,
    check_results,
    class_name,
    collect_runs,
    evaluated_samples,
    listing,
    mapping,
    metric,
    run_title,
    whole,
)


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([], "needs at least one result, got none"),
        ({"task": "t", "method": "m"}, r"got one result: wrap it as \[result\]"),
        (["result.json"], "result 0 is a str, not a dictionary"),
        ([{"task": "t", "method": "m"}, {"task": "t"}], "result 1 has no 'method'"),
    ],
)
def test_what_is_no_list_of_results_is_refused(results, message):
    with pytest.raises(ValueError, match=message):
        check_results(results)


def test_missing_parts_read_as_empty():
    assert metric({}, "accuracy") is None
    assert [as_number(value) for value in (3, float("nan"), "3", True, 10**400)] == [3.0, None, None, None, None]
    assert [whole(value) for value in (3, 3.0, None, -1)] == [3, 3, None, None]
    assert metric({"metrics": {"accuracy": None}}, "accuracy") is None
    assert mapping({"config": None}, "config") == {}
    assert listing({"history": None}, "history") == []
    assert Run({}, {"margins": None}).part("margins") == {}


def test_names_fall_back_to_numbers_and_the_seed_may_be_missing():
    assert class_name({"class_names": ["a"]}, 1) == "1"
    assert run_title({"task": "t", "method": "m"}) == "m on t"


def result(**more):
    return {"task": "t", "method": "m", **more}


def test_runs_that_share_a_class_name_share_its_filter():
    first, second = collect_runs(
        [
            result(class_names=["cat", "dog"], group_names=["day", "night"]),
            result(class_names=["dog", "cow"], group_names=["night"]),
        ]
    )
    assert first.filters(1)["data_class"] == second.filters(0)["data_class"] == "c1"
    assert second.filters(0, 1, group=0) == {"data_class": "c1 c2", "data_group": "g1"}
    assert (first.key, second.key) == ("run-1-", "run-2-")
    assert first.class_tokens(2) == "c0 c1"


def test_a_class_or_group_that_nobody_knows_filters_nothing():
    (run,) = collect_runs([result()])
    assert run.filters(None, 3, group=None) == {}
    assert (run.class_name(None), run.class_name(3), run.group_name(None), run.group_name(2)) == ("", "3", "", "2")


def test_explanations_must_stand_beside_their_results():
    with pytest.raises(ValueError, match="a report of 1 results takes as many explanations, got 2"):
        collect_runs([result()], [None, None])
    with pytest.raises(ValueError, match="explanation 0 is a list, not a dictionary"):
        collect_runs([result()], [[]])


def test_evaluated_samples_are_the_rows_of_the_confusion_matrix():
    assert evaluated_samples(result(confusion=[[3, 1], [0, 7]])) == [4, 7]
    assert evaluated_samples(result()) == []


RESULT = {"task": "t", "method": "m", "seed": 0}


def write_run(folder, explained=False, **more):
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(RESULT | more))
    if explained:
        (folder / "explanations.json").write_text('{"split": "test"}')
    return folder


def test_a_folder_a_result_and_the_folder_above_name_the_same_run(tmp_path):
    folder = write_run(tmp_path / "runs" / "a", explained=True)
    for path in (folder, folder / "result.json", tmp_path):
        (found,) = read_runs([path])
        assert found.result == RESULT
        assert found.explanations == {"split": "test"}
        assert found.folder == folder


def test_runs_below_a_folder_come_in_order_and_may_lack_explanations(tmp_path):
    for seed in (2, 0, 1):
        write_run(tmp_path / f"seed{seed}", explained=seed == 1, seed=seed)
    found = read_runs([tmp_path])
    assert [run.result["seed"] for run in found] == [0, 1, 2]
    assert [run.explanations is None for run in found] == [True, False, True]


def write_ledger(path, *rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_rows_of_a_ledger_are_results_and_a_blank_figure_stays_unmeasured(tmp_path):
    row = {
        "task": "t",
        "method": "icda",
        "seed": "3",
        "accuracy": "0.5",
        "nll": "",
        "selection": "last",
        "model": "cnn",
    }
    (found,) = read_runs([write_ledger(tmp_path / "a.csv", row)])
    assert found.result["metrics"] == {"accuracy": 0.5}
    assert (found.result["seed"], found.result["selection"], found.result["model"]) == (3, "last", "cnn")
    assert found.folder is None


def test_what_tells_rows_apart_is_never_averaged_away(tmp_path):
    row = {"task": "t", "method": "icda", "seed": "0", "accuracy": "0.5", "model": "a", "options": ""}
    ledger = write_ledger(tmp_path / "a.csv", row, row | {"model": "b"}, row | {"options": "beta=0"})
    assert [(run.result["task"], run.result["method"]) for run in read_runs([ledger])] == [
        ("t, a", "icda"),
        ("t, b", "icda"),
        ("t, a", "icda (beta=0)"),
    ]


def test_rows_of_a_ledger_that_differ_in_epochs_or_attributes_are_no_seeds_of_each_other(tmp_path):
    row = {"task": "t", "method": "icda", "seed": "0", "accuracy": "0.5", "epochs": "40", "options": ""}
    row["attributes"] = "known"
    changes = [{}, {"epochs": "120"}, {"options": "lambda0=0.1"}, {"method": "ce"}]
    ledger = write_ledger(tmp_path / "a.csv", *(row | change for change in changes))
    names = ["icda (40 epochs)", "icda (120 epochs)", "icda (lambda0=0.1, 40 epochs)", "ce"]
    results = [run.result for run in read_runs([ledger])]
    assert [result["method"] for result in results] == names
    assert [row[:3] for row in comparison_table(results).rows] == [("t", name, "1") for name in names]
    shared = [row | {"options": "beta=0", "seed": seed} for seed in "01"]  # named even where all rows share them
    results = [run.result for run in read_runs([write_ledger(tmp_path / "c.csv", *shared)])]
    assert [row[:3] for row in comparison_table(results).rows] == [("t", "icda (beta=0)", "2")]
    told = write_ledger(tmp_path / "b.csv", row, row | {"attributes": "unknown", "seed": "1"})
    assert [run.result["method"] for run in read_runs([told])] == [
        "icda (attributes known)",
        "icda (attributes unknown)",
    ]


def test_runs_of_different_folders_say_what_tells_them_apart(tmp_path):
    for name, epochs, seed in (("a", 40, 0), ("b", 40, 1), ("c", 120, 0)):
        write_run(tmp_path / name, seed=seed, config={"epochs": epochs, "seed": seed})
    found = read_runs([tmp_path / name for name in "abc"])
    assert [run.result["method"] for run in found] == ["m (40 epochs)", "m (40 epochs)", "m (120 epochs)"]
    assert [run.result["method"] for run in read_runs([tmp_path / "a", tmp_path / "b"])] == ["m", "m"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("speed.csv", "task,method,accuracy\n", "has no rows"),
        ("speed.csv", "a,b\n1,2\n", "no column task and method"),
        ("speed.csv", "task,method\nt,m\n", "any figure"),
        ("notes.txt", "", "neither the folder of a run"),
        ("some.json", '{"method": "m"}', "has no 'task'"),
        ("cut.json", '{"task"', "is not JSON"),
        ("list.json", "[]", "holds a list"),
    ],
)
def test_what_is_no_run_is_refused_with_what_was_wanted(tmp_path, name, text, message):
    with pytest.raises(FileNotFoundError, match="nor does a folder below it"):
        read_runs([tmp_path])
    with pytest.raises(FileNotFoundError, match="is not there"):
        read_runs([tmp_path / name])
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_runs([tmp_path / name])
