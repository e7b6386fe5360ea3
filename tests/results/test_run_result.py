"""A run's result: written, read back, refused, and as its schema says."""

import copy
import json
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import jsonschema
import pytest

from icda.results import SCHEMA_VERSION, EpochRecord, RunResult, UnwritableError, write_atomically
from icda.results.files import read_json, write_json
from support import load_module

FULL = RunResult(
    task="digits_lt",
    method="icda",
    model="tiny_cnn",
    seed=3,
    split="test",
    metrics={"accuracy": 0.5, "nll": None, "per_class_accuracy": [1.0, None], "per_group_accuracy": {"a": 0.5}},
    selection="last",
    config={"epochs": 2, "options": {}},
    config_hash="abc",
    data_hash="def",
    environment={"torch": "2.6", "cores": 2, "commit": None},
    class_names=["cat", "dog"],
    class_counts=[3, 1],
    group_names=[],
    group_samples=[],
    confusion=[[1, 0], [1, 0]],
    selected_epoch=1,
    history=[
        EpochRecord(0, "first", 1.5, None, 0.1, {"temperature": 3.0}, {"accuracy": 0.25}, 2.0),
        EpochRecord(1, "second", 1.0, 0.75, 0.01, {}, {"accuracy": 0.5}, 1.0),
    ],
    seconds=4.0,
)


def test_what_is_written_is_read_back_equal_and_typed(tmp_path):
    FULL.write(tmp_path / "result.json")
    found = RunResult.read(tmp_path / "result.json")
    assert found == FULL
    assert isinstance(found.history[0], EpochRecord)
    assert found.history[0].figures == {"temperature": 3.0}
    assert found.history[1].validation == {"accuracy": 0.5}
    assert json.loads((tmp_path / "result.json").read_text())["schema_version"] == SCHEMA_VERSION
    assert not list(tmp_path.glob(".*.part"))


def test_a_result_is_the_mapping_that_its_file_holds():
    plain = {name: value for name, value in json.loads(FULL.to_json()).items() if name != "schema_version"}
    assert plain == FULL
    assert dict(FULL) == plain
    assert pickle.loads(pickle.dumps(FULL)) == FULL
    assert {**FULL, "method": "ce"}["method"] == "ce"
    assert FULL["history"][0]["validation_accuracy"] == 0.25
    assert FULL.get("nothing") is None
    with pytest.raises(KeyError):
        FULL["nothing"]
    assert json.dumps(FULL) == json.dumps(plain)


def test_a_result_cannot_be_changed_but_another_one_made():
    for change in (lambda: FULL.update(seed=4), lambda: FULL.__setitem__("seed", 4), lambda: FULL.pop("seed")):
        with pytest.raises(TypeError, match="a RunResult cannot be changed"):
            change()
    with pytest.raises(FrozenInstanceError):
        FULL.seed = 4
    other = replace(FULL, seed=4)
    assert (other.seed, other["seed"], FULL.seed, FULL["seed"]) == (4, 4, 3, 3)
    assert copy.deepcopy(FULL) == FULL


def test_a_metric_is_one_number_or_none():
    assert FULL.metric("accuracy") == 0.5
    assert FULL.metric("nll") is FULL.metric("per_class_accuracy") is FULL.metric("unknown") is None
    assert RunResult("t", "m").metric("accuracy") is None
    assert dict(RunResult("t", "m", group_names=[])) == {"task": "t", "method": "m", "group_names": []}


def test_fields_of_a_later_version_survive_reading_and_writing():
    history = [{"mood": "good", "train_loss": 2.0}, {"train_loss": 1.0}]  # without numbers they are counted
    found = RunResult.from_dict({"task": "t", "method": "m", "weather": {"rain": 1}, "history": history})
    assert found.others == {"weather": {"rain": 1}}
    assert found["weather"] == {"rain": 1}
    assert json.loads(found.to_json())["history"][0]["mood"] == "good"
    assert found.history is not None
    assert [(record.epoch, record.train_loss) for record in found.history] == [(0, 2.0), (1, 1.0)]


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"method": "m"}, "has no 'task'"),
        ({"task": "t"}, "has no 'method'"),
        ({"task": "t", "method": "m", "schema_version": 99}, r"schema version 99; this icda reads up to 1: upgrade"),
        ({"task": "t", "method": "m", "schema_version": "new"}, "schema version 'new'"),
        ({"task": "t", "method": "m", "history": [3]}, "epoch 0 of the history is a int"),
    ],
)
def test_what_is_no_result_is_refused_by_the_name_of_its_file(plain, message, tmp_path):
    (tmp_path / "some.json").write_text(json.dumps(plain))
    with pytest.raises(ValueError, match=message):
        RunResult.read(tmp_path / "some.json")


def test_files_that_are_no_json_objects_are_refused(tmp_path):
    for content, message in ((b'{"task"', "is not JSON"), (b"\xff\xfe", "is not JSON"), (b"[]", "holds a list")):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_json(tmp_path / "bad.json")


def test_nan_is_refused_before_the_file_is_touched(tmp_path):
    path = tmp_path / "explanations.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert read_json(path) == {"a": 1}


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    write_atomically(path, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(UnwritableError, match=r"No space left on device\. The last good one is untouched\."):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
result_schema = load_module(ROOT / "tools/result_schema.py", "result_schema").result_schema
EARLIER = Path(__file__).parents[1] / "training" / "earlier_version" / "result.json"


def test_the_published_schema_is_the_one_of_the_code():
    assert json.loads((DOCS / "result_schema.json").read_text()) == result_schema(), (
        "python tools/result_schema.py > docs/result_schema.json"
    )


@pytest.mark.parametrize("kind", [RunResult, EpochRecord])
def test_the_page_explains_every_field_as_the_code_does(kind):
    page = (DOCS / "results.md").read_text()
    for entry in fields(kind):
        if "inline" not in entry.metadata:
            assert f"| `{entry.name}` | {entry.metadata['description']} |" in page, entry.name


def test_results_of_this_version_and_the_one_before_fit_the_schema():
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
def test_the_schema_refuses_what_a_run_never_writes(change):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(EARLIER.read_text()) | change, result_schema())


def test_the_schema_asks_for_a_task_and_a_method():
    with pytest.raises(jsonschema.ValidationError, match="'method' is a required property"):
        jsonschema.validate({"task": "t"}, result_schema())
