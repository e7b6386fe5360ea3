import json
from pathlib import Path

import pytest


@pytest.fixture
def run(icda):
    icda("train", "--task", "digits_coloured", "--epochs", 1, "--out", "run", "--quiet").worked()
    return "run"


def test_a_run_is_evaluated_with_the_figures_of_its_result(icda, run):
    before = {path.name: path.read_bytes() for path in Path(run).iterdir()}
    answer = icda("eval", run)
    assert {path.name: path.read_bytes() for path in Path(run).iterdir()} == before, "it changes no file of the run"
    metrics = json.loads(Path(run, "result.json").read_text())["metrics"]
    assert answer.code == 0
    assert "test split" in answer.out
    for name in ("accuracy", "worst_group_accuracy"):
        assert f"{100 * metrics[name]:.2f}" in answer.out


def test_json_is_the_whole_result_and_nothing_else(icda, run):
    answer = icda("eval", run, "--json")
    result = json.loads(Path(run, "result.json").read_text())
    printed = json.loads(answer.out)
    assert answer.err == ""
    assert printed["metrics"] == result["metrics"]
    assert printed["config"] == result["config"]
    assert "train split" in icda("eval", run, "--split", "train").out
    other = json.loads(icda("eval", run, "--split", "train", "--json").out)
    assert other["split"] == "train"
    assert sum(map(sum, other["confusion"])) == sum(other["class_counts"])


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_a_folder_that_is_no_run_is_named(folder, icda):
    answer = icda("eval", folder).refused()
    assert answer.err == (
        f"icda: {folder} holds no trained model (model.pt): give the folder of a finished `icda train`.\n"
    )


def test_a_damaged_model_is_named(icda, run):
    path = Path(run, "model.pt")
    path.write_bytes(path.read_bytes()[:5000])
    assert "run/model.pt is not a checkpoint, or one that is damaged or truncated" in icda("eval", run).refused().err


def test_data_of_another_kind_or_with_other_classes_are_refused(icda, run):
    Path("texts.csv").write_text("text,label\n" + "".join(f"word {k},{'abc'[k % 3]}\n" for k in range(60)))
    assert "no column of images" in icda("eval", run, "--data", "texts.csv").refused().err
    train_on_texts(icda)
    answer = icda("eval", "run", "--data", "texts.csv").refused()
    assert "was trained on classes bad, good; the data have a, b, c" in answer.err
    assert "Traceback" not in answer.err


def write_texts(name, rows):
    lines = [f"{'good fine' if k % 3 else 'bad poor'} film {k},{'good' if k % 3 else 'bad'}" for k in range(rows)]
    Path(name).write_text("\n".join(["text,label", *lines]))


def train_on_texts(icda):
    write_texts("train.csv", 90)
    icda("train", "--data", "train.csv", "--epochs", 1, "--out", "run", "--quiet", "--overwrite").worked()


def test_all_of_other_data_is_judged_and_counted(icda):
    """A fifth of it was judged, and nobody said so."""
    train_on_texts(icda)
    write_texts("new.csv", 30)
    answer = icda("eval", "run", "--data", "new.csv").worked()
    assert "Judged: 30 samples (bad 10, good 20)" in answer.out
    printed = json.loads(icda("eval", "run", "--data", "new.csv", "--json").out)
    assert sum(map(sum, printed["confusion"])) == 30
    assert printed["split"] == "all"
    own = icda("eval", "run")
    assert "Judged: 18 samples" in own.out


def test_one_class_alone_can_be_judged_and_a_named_split_is(icda):
    train_on_texts(icda)
    Path("one.csv").write_text("text,label,group\ngood film,good,x\nfine film,good,y\npoor film,good,y\n")
    answer = icda("eval", "run", "--data", "one.csv", "--json").worked()
    assert list(json.loads(answer.out)["metrics"]["per_group_accuracy"]) == ["x", "y"]
    Path("split.csv").write_text("text,label,split\ngood film,good,train\nfine film,good,test\npoor film,bad,test\n")
    assert "Judged: 2 samples (bad 1, good 1)" in icda("eval", "run", "--data", "split.csv").out
    assert "Judged: 1 samples (bad 0, good 1)" in icda("eval", "run", "--data", "split.csv", "--split", "train").out
