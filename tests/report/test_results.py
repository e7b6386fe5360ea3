import pytest

from icda.report.results import check_results, class_name, listing, mapping, metric, run_title


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
    assert metric({"metrics": {"accuracy": None}}, "accuracy") is None
    assert mapping({"config": None}, "config") == {}
    assert listing({"history": None}, "history") == []


def test_names_fall_back_to_numbers_and_the_seed_may_be_missing() -> None:
    assert class_name({"class_names": ["a"]}, 1) == "1"
    assert run_title({"task": "t", "method": "m"}) == "m on t"
