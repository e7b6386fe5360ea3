import csv
import hashlib
import json
from dataclasses import replace

import pytest
import torch

from icda.methods import Method
from icda.registry import UnknownNameError
from icda.training import CheckpointError, TrainConfig, evaluate_folder, load_config, train
from icda.training.checkpoint import load_checkpoint
from icda.training.progress import ProgressView


class ForbiddenView(ProgressView):
    """Fails the test at the first step."""

    def step(self, *_):
        pytest.fail("a step was trained")


def fingerprints(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def write_table(path, rows=60):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", "group"])
        for row in range(rows):
            kind, place = ("good", "bad")[row % 2], ("home", "away")[row // 2 % 2]
            writer.writerow([f"a {kind} day number {row} at {place}", kind, place])
    return path


def test_the_result_has_every_key_that_the_design_names(configure):
    config = configure("run", task="digits_coloured", seed=3, epochs=1)
    result = train(config)
    assert result.keys() >= {
        *("task", "method", "seed", "metrics", "selection", "config", "data_hash", "environment"),
        *("model", "split", "history", "selected_epoch", "confusion", "class_names", "group_names"),
    }
    assert result["metrics"].keys() >= {"accuracy", "worst_group_accuracy", "per_class_accuracy", "balanced_accuracy"}
    assert (result["task"], result["method"], result["seed"], result["selection"]) == (
        *("digits_coloured", "icda", 3, "last"),
    )
    assert (result["split"], result["model"]) == ("test", "small_cnn")
    assert result["config"] == config.as_dict()


def test_the_files_of_a_run_say_the_same_as_what_is_returned(configure):
    config = configure("run", options={"lambda0": 0.25})
    result = train(config)
    folder = config.folder()
    assert {path.name for path in folder.iterdir()} == {
        *("checkpoint.pt", "model.pt", "config.yaml", "log.jsonl", "result.json", "explanations.json", "report.html")
    }
    assert json.loads((folder / "result.json").read_text()) == {"schema_version": 1, **result}
    assert load_config(folder / "config.yaml") == config
    assert [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()] == result["history"]
    assert "icda on digits_lt" in (folder / "report.html").read_text()
    assert sum(map(sum, result["confusion"])) == 500
    correct = sum(result["confusion"][k][k] for k in range(10))
    assert result["metrics"]["accuracy"] == pytest.approx(correct / 500)


def test_an_alias_of_a_method_ends_up_under_its_full_name(configure):
    assert train(configure("run", method="CE", epochs=1))["method"] == "cross_entropy"


class Spoiled(Method):
    """Forgets all it has learned at the end of the fourth epoch, and of every one after it."""

    def __init__(self, setup):
        super().__init__()

    def on_epoch_end(self, context):
        if context.epoch >= 3:
            with torch.no_grad():
                context.head.weight.zero_()


def test_the_model_kept_is_the_best_on_validation_data_or_the_last(configure, register_method):
    method = register_method("spoiled", Spoiled)
    best, last = (configure(name, method=method, selection=name, epochs=5) for name in ("validation_accuracy", "last"))
    result, plain = train(best), train(last)
    scores = [record["validation_accuracy"] for record in result["history"]]
    assert result["selected_epoch"] == scores.index(max(scores)) < 3
    assert evaluate_folder(best.folder(), "validation")["metrics"]["accuracy"] == pytest.approx(max(scores))
    assert plain["selected_epoch"] == 4
    assert plain["metrics"]["accuracy"] == pytest.approx(0.1)
    assert result["metrics"]["accuracy"] > 0.2


def test_the_model_kept_may_be_the_best_on_metadata(configure, register_method):
    method = register_method("spoiled", Spoiled)
    config = configure("metadata", method=method, selection="metadata_nll", epochs=5)
    result = train(config)
    losses = [record["metadata_nll"] for record in result["history"]]
    assert result["selected_epoch"] == losses.index(min(losses)) < 3
    assert evaluate_folder(config.folder(), "metadata")["metrics"]["nll"] == pytest.approx(min(losses))
    assert all(record["validation_accuracy"] is not None for record in result["history"])


def test_tensorboard_files_are_written_when_asked_for(configure):
    config = configure("run", tensorboard=True, epochs=1)
    train(config)
    assert list((config.folder() / "tensorboard").iterdir())


def test_a_folder_with_a_run_is_refused_and_left_alone(configure, train_for):
    finished, unfinished = configure("finished", epochs=1), configure("unfinished")
    train(finished)
    train_for(unfinished, 7)
    for config in (finished, unfinished):
        before = fingerprints(config.folder())
        with pytest.raises(FileExistsError, match=r"--resume continues it, --overwrite starts again"):
            train(config)
        assert fingerprints(config.folder()) == before


def test_a_finished_run_is_returned_without_a_step(configure):
    config = configure("run", epochs=1)
    result = train(config)
    before = fingerprints(config.folder())
    assert train(config, resume=True, view=ForbiddenView()) == result
    assert fingerprints(config.folder()) == before


def test_where_files_go_and_how_often_may_change_between_a_run_and_its_resume(configure, train_for):
    config = configure("run", checkpoint_every=2)
    train_for(config, 5)
    train(replace(config, checkpoint_every=0, tensorboard=True), resume=True)


def test_overwrite_starts_again_with_the_new_settings(configure, assert_same_run):
    old, new, fresh = (
        configure("run", epochs=2),
        configure("run", epochs=1, seed=5),
        configure("fresh", epochs=1, seed=5),
    )
    train(old)
    assert train(new, overwrite=True)["config"] == new.as_dict()
    train(fresh)
    assert_same_run(fresh.folder(), new.folder())


def test_an_overwrite_that_is_refused_costs_nothing(configure):
    config = configure("run", epochs=1)
    train(config)
    before = fingerprints(config.folder())
    for wrong in ({"method": "icdaa"}, {"model": "small_cmm"}, {"task": "digit_lt"}, {"selection": "lats"}):
        with pytest.raises(UnknownNameError):
            train(replace(config, **wrong), overwrite=True)
        assert fingerprints(config.folder()) == before


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "unfinished"])
def test_resuming_with_other_settings_is_refused_by_their_names_and_changes_nothing(finished, configure, train_for):
    config = configure("run")
    if finished:
        train(config)
    else:
        train_for(config, 7)
    before = fingerprints(config.folder())
    other = replace(config, learning_rate=0.2, options={"beta": 0.0})
    with pytest.raises(ValueError, match=r"options \{\} -> .*; learning_rate 0.1 -> 0.2.*--overwrite"):
        train(other, resume=True, view=ForbiddenView())
    assert fingerprints(config.folder()) == before


def test_resuming_on_other_data_is_refused_and_changes_nothing(configure, train_for, tmp_path):
    table = write_table(tmp_path / "days.csv")
    config = configure("run", data=str(table), batch_size=8, checkpoint_every=1)
    train_for(config, 3)
    before = fingerprints(config.folder())
    table.write_text(table.read_text().replace("number 7", "number seven"))
    with pytest.raises(ValueError, match=r"the data behind task 'days' changed since .*checkpoint\.pt was written"):
        train(config, resume=True, view=ForbiddenView())
    assert fingerprints(config.folder()) == before
    write_table(table)
    train(config, resume=True)


@pytest.mark.parametrize("content", [b"", b"half a checkpoi", None], ids=["empty", "foreign", "model instead"])
def test_a_checkpoint_that_cannot_be_used_stops_the_resume_and_stays(content, configure, train_for):
    config = configure("run", selection="validation_accuracy")
    train_for(config, 7)
    path = config.folder() / "checkpoint.pt"
    path.write_bytes((config.folder() / "model.pt").read_bytes() if content is None else content)
    before = fingerprints(config.folder())
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt"):
        train(config, resume=True)
    assert fingerprints(config.folder()) == before


def test_bf16_trains_and_keeps_weights_and_statistics_in_float32(configure):
    config = configure("half", precision="bf16", epochs=1)
    result = train(config)
    state = load_checkpoint(config.folder() / "model.pt")
    assert result["history"][0]["train_loss"] > 0
    floating = [value for value in state["networks"][0].values() if value.is_floating_point()]
    assert {value.dtype for value in floating} == {torch.float32}
    assert state["method"]["criterion.statistics.mean"].dtype == torch.float32
    assert state["method"]["criterion.statistics.count"].sum() == sum(result["class_counts"])


def test_a_run_does_not_inherit_the_precision_of_the_one_before(configure, assert_same_run):
    before, half, after = configure("a", epochs=1), configure("b", epochs=1, precision="bf16"), configure("c", epochs=1)
    for config in (before, half, after):
        train(config)
    assert_same_run(before.folder(), after.folder())
    with pytest.raises(AssertionError):
        assert_same_run(before.folder(), half.folder())


def test_a_bf16_run_that_was_stopped_ends_bit_identical(assert_resumes):
    assert_resumes(8, 6, every=3, precision="bf16", method="risda_two_stage")


def test_evaluating_a_run_gives_the_figures_of_its_result(configure):
    config = configure("run", method="risda_two_stage", selection="validation_balanced_accuracy")
    result = train(config)
    again = evaluate_folder(config.folder())
    for key in ("task", "method", "metrics", "confusion", "data_hash", "config_hash"):
        assert again[key] == result[key], key
    validation = evaluate_folder(config.folder(), "validation")
    best = result["history"][result["selected_epoch"]]
    assert validation["split"] == "validation"
    assert validation["metrics"]["accuracy"] == pytest.approx(best["validation_accuracy"])


def test_evaluating_a_split_that_the_task_lacks_names_those_it_has(configure, tmp_path):
    config = configure("run", data=str(write_table(tmp_path / "days.csv")), epochs=1, batch_size=16)
    train(config)
    with pytest.raises(ValueError, match="task 'days' has no metadata split: choose from train, validation, test"):
        evaluate_folder(config.folder(), "metadata")


def test_a_run_on_own_data_can_be_evaluated_on_other_data(configure, tmp_path):
    config = configure("run", data=str(write_table(tmp_path / "days.csv")), epochs=3, batch_size=16)
    train(config)
    other = evaluate_folder(config.folder(), data=str(write_table(tmp_path / "weeks.csv", rows=100)))
    assert other["task"] == "weeks"
    assert sum(map(sum, other["confusion"])) == 20


@pytest.mark.parametrize("method", ["group_dro", "uw", "irm", "lisa"])
def test_a_model_that_was_told_groups_is_evaluated_on_data_with_others_or_none(method, tmp_path):
    def write(name, attributes):
        rows = ["text,label,split" + (",attribute" if attributes else "")]
        for split in ("train", "validation", "test"):
            for row in range(24):
                attribute = f",{row // 2 % attributes}" if attributes else ""
                rows.append(f"{'good' if row % 2 else 'bad'} film {row % 5},{row % 2},{split}{attribute}")
        (tmp_path / name).write_text("\n".join(rows) + "\n")
        return str(tmp_path / name)

    folder = tmp_path / "run"
    data = write("two.csv", 2)
    train(TrainConfig(data=data, method=method, epochs=1, batch_size=12, out=str(folder)))
    own = evaluate_folder(folder)["metrics"]
    other = evaluate_folder(folder, data=write("three.csv", 3))["metrics"]
    none = evaluate_folder(folder, data=write("none.csv", None))["metrics"]
    assert own["accuracy"] == other["accuracy"] == none["accuracy"]
    assert other["worst_group_accuracy"] is not None
    assert none["worst_group_accuracy"] is None
