"""`icda train` and `icda tune`."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from icda.training import TrainConfig, load_config
from icda.training.config import save_config


def result_of(folder):
    return json.loads((Path(folder) / "result.json").read_text())


def picture(path, shade):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(shade).integers(0, 60, (10, 12, 3))
    Image.fromarray((noise + shade).astype("uint8")).save(path)
    return path


def test_a_run_on_digits_prints_its_table_and_says_where_the_files_are(icda):
    answer = icda("train", "--epochs", 2, "--batch-size", 64, "--set", "lambda0=0.25", "sample_margin=false").worked()
    folder = Path("runs/digits_lt/icda/seed0")
    result = result_of(folder)
    assert f"{100 * result['metrics']['accuracy']:.2f}" in answer.out
    assert "digits_lt" in answer.out
    assert f"Model, log and result: {folder}" in answer.out
    assert str(folder / "report.html") in answer.out
    assert (folder / "report.html").is_file()
    assert result["config"]["options"] == {"lambda0": 0.25, "sample_margin": False}
    said = answer.err.splitlines()
    assert said[0] == "task digits_lt: train 287, validation 100, test 500, metadata 100 samples"
    assert said[1].startswith("10 classes, training samples of each: ")
    assert said[2].startswith("model small_cnn: ")
    assert said[3].startswith("epoch 1/2: loss ")
    assert len(answer.err.splitlines()) == 5


def test_without_groups_the_worst_class_chooses_unless_a_rule_or_a_file_says_otherwise(icda):
    common = ("--task", "digits_coloured", "--model", "mlp", "--method", "cross_entropy", "--epochs", 1, "--quiet")
    for words, rule in (
        (("--attributes", "unknown"), "validation_worst_class"),
        (("--attributes", "unknown", "--selection", "last"), "last"),
        ((), "last"),
        (("--config", "0/config.yaml", "--attributes", "unknown", "--overwrite"), "last"),
    ):
        folder = str(len(words))
        answer = icda("train", *common, *words, "--out", folder)
        assert (answer.code, answer.err) == (0, "")  # quiet: the result alone
        assert "cross_entropy" in answer.out
        assert result_of(folder)["selection"] == rule


@pytest.mark.parametrize("data", ["pictures", "pictures.csv"])
def test_a_folder_and_a_table_of_pictures_are_trained_on(data, icda):
    rows = ["image,label"]
    for number in range(20):
        for kind, shade in (("dark", 0), ("light", 180)):
            rows.append(f"{picture(Path('pictures') / kind / f'{number}.png', shade + number % 3)},{kind}")
    Path("pictures.csv").write_text("\n".join(rows))
    words = ["--data", data, "--image-size", 8, "--model", "small_cnn", "--epochs", 4, "--batch-size", 8]
    icda("train", *words, "--learning-rate", 0.02).worked()
    result = result_of("runs/pictures/icda/seed0")
    assert (result["task"], result["class_names"]) == ("pictures", ["dark", "light"])
    assert result["metrics"]["accuracy"] == 1.0


def test_a_table_of_texts_with_groups_is_trained_on(icda):
    with Path("days.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["comment", "label", "place", "part"])
        for row in range(90):
            kind, place = ("good", "bad")[row % 2], ("home", "away")[row // 2 % 2]
            part = ("train", "train", "val", "test", "train")[row % 5]
            writer.writerow([f"such a {kind} day {row} at {place}", kind, place, part])
    words = ["--data", "days.csv", "--group-column", "place", "--split-column", "part", "--epochs", 15]
    answer = icda(
        "train", *words, "--batch-size", 16, "--method", "ce", "--selection", "validation_worst_group"
    ).worked()
    result = result_of("runs/days/ce/seed0")
    assert result["class_names"] == ["bad", "good"]
    assert result["group_names"] == ["bad, away", "bad, home", "good, away", "good, home"]
    assert "groups (class x attribute)" in answer.out
    assert sum(map(sum, result["confusion"])) == 18
    assert result["metrics"]["worst_group_accuracy"] == 1.0


def test_a_folder_with_a_run_is_kept_continued_or_overwritten_as_told(icda):
    words = ["train", "--epochs", 1, "--out", "run"]
    icda(*words).worked()
    before = Path("run/result.json").read_bytes()
    refused = icda(*words).refused()
    assert refused.err == "icda: run already holds a run: --resume continues it, --overwrite starts again.\n"
    resumed = icda(*words, "--resume")
    assert (resumed.code, resumed.err) == (0, "")
    assert "Model, log and result: run" in resumed.out
    assert Path("run/result.json").read_bytes() == before
    assert icda("train", "--epochs", 2, "--out", "run", "--resume").err.count("epochs 1 -> 2") == 1
    icda("train", "--epochs", 2, "--out", "run", "--overwrite").worked()
    assert len(result_of("run")["history"]) == 2


def test_a_file_of_settings_is_the_default_that_options_beside_it_overrule(icda):
    save_config(TrainConfig(epochs=1, seed=4, method="isda", options={"lambda0": 0.75}, out="first"), Path("s.yaml"))
    icda("train", "--config", "s.yaml").worked()
    assert result_of("first")["seed"] == 4
    icda("train", "--config=first/config.yaml", "--out", "second", "--seed", 5, "--set", "rank=3").worked()
    second = load_config(Path("second/config.yaml"))
    assert (second.seed, second.method, second.epochs) == (5, "isda", 1)
    assert second.options == {"lambda0": 0.75, "rank": 3}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "no configuration file at settings.yaml"),
        ("epoch: 3", "settings.yaml has no setting 'epoch': did you mean 'epochs'?"),
        ("epochs: many", "settings.yaml: epochs must be"),
        ("epochs: [", "settings.yaml cannot be read as YAML"),
    ],
)
def test_trouble_with_a_file_of_settings_is_told_in_a_line(content, complaint, icda):
    if content is not None:
        Path("settings.yaml").write_text(content)
    answer = icda("train", "--config", "settings.yaml").refused()
    assert complaint in answer.text
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--epochs", "0"], "epochs must be"),
        (["--set", "lambda0"], "--set expects name=value, got 'lambda0'"),
        (["--set", "lambda0=["], "--set lambda0=[: the value cannot be read as YAML"),
        (["--set", "lambda0=-1"], "lambda0"),
        (["--set", "lambda0=abc"], "lambda0 must be a valid number, got 'abc'."),
        (["--set", "beta=-1"], "beta"),
        (["--data", "nowhere"], "nowhere is not there. Expected: a CSV table, or a folder"),
        (["--out", "runs/{what}"], "out may hold {task}, {method} and {seed}"),
        (["--selection", "validation_worst_group"], "needs a validation split with group labels"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_makes_no_sense_is_told_in_a_line_before_training(words, complaint, icda):
    answer = icda("train", *words)
    assert answer.code != 0
    assert complaint in answer.text
    assert "Traceback" not in answer.text
    assert not Path("runs").exists()


def test_a_diverging_run_ends_with_advice(icda):
    answer = icda("train", "--learning-rate", 1e30, "--out", "run").refused()
    assert re.search("lower (the|--)?.?learning.rate", answer.text)
    assert "Traceback" not in answer.text


pytest.importorskip("optuna")

WORDS = ("tune", "--task", "digits_lt", "--method", "icda", "--model", "linear", "--epochs", 1)


def test_tune_names_the_best_values_and_the_call_that_trains_with_them(icda):
    answer = icda(*WORDS, "--trials", 2, "--space", "lambda0=0.1:1.0", "beta=0:0.5").worked()
    assert "trial 2 of 2" in answer.text
    assert "best of 2: validation accuracy" in answer.text
    best = Path("runs/tune/digits_lt/icda/seed0/best.yaml")
    assert f"icda train --config {best}" in answer.text
    icda("train", "--config", best, "--quiet").worked()


def test_tune_without_a_space_or_with_no_trials_is_refused(icda):
    assert "--space is empty" in icda(*WORDS).err
    assert "--trials must be at least 1" in icda(*WORDS, "--trials", 0, "--space", "beta=0:1").err
