import pytest

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
def test_what_is_no_list_of_results_is_refused(results: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_results(results)


def test_missing_parts_read_as_empty() -> None:
    assert metric({}, "accuracy") is None
    assert [as_number(value) for value in (3, float("nan"), "3", True, 10**400)] == [3.0, None, None, None, None]
    assert [whole(value) for value in (3, 3.0, None, -1)] == [3, 3, None, None]
    assert metric({"metrics": {"accuracy": None}}, "accuracy") is None
    assert mapping({"config": None}, "config") == {}
    assert listing({"history": None}, "history") == []
    assert Run({}, {"margins": None}).part("margins") == {}


def test_names_fall_back_to_numbers_and_the_seed_may_be_missing() -> None:
    assert class_name({"class_names": ["a"]}, 1) == "1"
    assert run_title({"task": "t", "method": "m"}) == "m on t"


def result(**more: object) -> dict[str, object]:
    return {"task": "t", "method": "m", **more}


def test_runs_that_share_a_class_name_share_its_filter() -> None:
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


def test_a_class_or_group_that_nobody_knows_filters_nothing() -> None:
    (run,) = collect_runs([result()])
    assert run.filters(None, 3, group=None) == {}
    assert (run.class_name(None), run.class_name(3), run.group_name(None), run.group_name(2)) == ("", "3", "", "2")


def test_explanations_must_stand_beside_their_results() -> None:
    with pytest.raises(ValueError, match="a report of 1 results takes as many explanations, got 2"):
        collect_runs([result()], [None, None])
    with pytest.raises(ValueError, match="explanation 0 is a list, not a dictionary"):
        collect_runs([result()], [[]])  # type: ignore[list-item]


def test_evaluated_samples_are_the_rows_of_the_confusion_matrix() -> None:
    assert evaluated_samples(result(confusion=[[3, 1], [0, 7]])) == [4, 7]
    assert evaluated_samples(result()) == []
