"""The published schema says what results hold: it is generated from the types, and results are checked against it."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from icda.results import EpochRecord, RunResult
from icda.results.schema import result_schema

DOCS = Path(__file__).parents[2] / "docs"
EARLIER = Path(__file__).parents[1] / "training" / "earlier_version" / "result.json"


def test_the_published_schema_is_the_one_of_the_code() -> None:
    assert json.loads((DOCS / "result_schema.json").read_text()) == result_schema(), (
        "python -m icda.results.schema > docs/result_schema.json"
    )


@pytest.mark.parametrize("kind", [RunResult, EpochRecord])
def test_the_page_explains_every_field_as_the_code_does(kind: type[Any]) -> None:
    page = (DOCS / "results.md").read_text()
    for entry in fields(kind):
        if "inline" not in entry.metadata:
            assert f"| `{entry.name}` | {entry.metadata['description']} |" in page, entry.name


def test_results_of_this_version_and_the_one_before_fit_the_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(result_schema())
    earlier = json.loads(EARLIER.read_text())
    jsonschema.validate(earlier, result_schema())
    jsonschema.validate(json.loads(RunResult.from_dict(earlier).to_json()), result_schema())


@pytest.mark.parametrize(
    "change",
    [
        {"task": 3},
        {"seed": "three"},
        {"class_counts": [1.5]},
        {"confusion": [["a"]]},
        {"schema_version": 2},
        {"history": [{"stage": "train"}]},
        {"history": [{"epoch": 0, "validation_accuracy": "good"}]},
        {"environment": {"torch": 2.6}},
    ],
    ids=str,
)
def test_the_schema_refuses_what_a_run_never_writes(change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(EARLIER.read_text()) | change, result_schema())


def test_the_schema_asks_for_a_task_and_a_method() -> None:
    with pytest.raises(jsonschema.ValidationError, match="'method' is a required property"):
        jsonschema.validate({"task": "t"}, result_schema())
