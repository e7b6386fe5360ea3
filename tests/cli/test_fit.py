"""fit, predict and export as a user meets them."""

import csv
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import icda as package
from icda.cli.fit import FitArguments
from support import write_photos


@pytest.fixture
def table(tmp_path):
    generator = np.random.default_rng(0)
    y = np.arange(120) % 2
    X = generator.normal(size=(120, 4)) + 2 * y[:, None]
    lines = ["f0,f1,f2,f3,kind"] + [",".join([*map(repr, row), "ab"[k]]) for row, k in zip(X.tolist(), y, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    return "table.csv"


def test_from_a_table_to_predictions(icda, table):
    answer = icda("fit", table, "--label-column", "kind").worked()
    assert "Features: f0, f1, f2, f3." in answer.err
    assert "plain training" in answer.out
    assert "Next: icda predict model NEW" in answer.out
    assert sorted(path.name for path in Path("model").iterdir()) == [
        "audit.csv",
        "audit.json",
        "model.json",
        "page.html",
        "questions.html",
        "source.json",
        "weights.safetensors",
    ]
    answer = icda("predict", "model", table, "--out", "out/p.csv").worked()
    with Path("out/p.csv").open() as file:
        rows = list(csv.DictReader(file))
    with Path(table).open() as file:
        known = [row["kind"] for row in csv.DictReader(file)]
    right = sum(row["label"] == label for row, label in zip(rows, known, strict=True))
    assert right > 110
    assert f"a {sum(row['label'] == 'a' for row in rows)}, b " in answer.out
    judged = icda("eval", "model", "--data", table).worked()
    assert "Judged: 120 samples (a 60, b 60)" in judged.out
    assert f"{100 * right / 120:.2f}" in judged.out
    assert package.load("model").predict(np.zeros((1, 4))).tolist() == ["a"]


def test_a_model_is_not_overwritten_by_accident(icda, table):
    icda("fit", table, "--labels", "kind").worked()
    again = icda("fit", table, "--labels", "kind").refused()
    assert again.err.strip().endswith(
        "icda: model is not empty: choose another --out, or --overwrite what icda wrote there."
    )
    icda("fit", table, "--labels", "kind", "--method", "icda", "--overwrite").worked()
    assert "ICDA: implicit counterfactual augmentation" in Path("model/page.html").read_text()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("fit", "nowhere"), "is not there"),
        (("fit", "table.csv"), "label"),
        (("fit", "table.csv", "--labels", "kin"), "did you mean 'kind'"),
        (("fit", "table.csv", "--labels", "kind", "--method", "icad"), "did you mean 'icda'"),
        (("fit", "table.csv", "--labels", "kind", "--train"), "--train needs images or texts"),
        (("fit", "table.csv", "--labels", "kind", "--train", "--method", "icad"), "did you mean 'icda'"),
        (("predict", "nowhere", "table.csv"), "holds no model"),
        (("predict", ".", "table.csv"), "holds no model"),
        (("export", "nowhere"), "needs --onnx FILE or --safetensors FILE"),
        (("export", "nowhere", "--onnx", "m.onnx"), "holds no model"),
        (("export", "nowhere", "--onnx", "."), "which is a folder"),
    ],
)
def test_wrong_words_are_one_sentence(words, complaint, icda, table):
    answer = icda(*words).refused()
    assert complaint in answer.err
    assert "Traceback" not in answer.err


def test_the_table_to_predict_is_not_overwritten(icda, table):
    icda("fit", table, "--labels", "kind").worked()
    before = Path(table).read_bytes()
    assert "the file to predict itself" in icda("predict", "model", table, "--out", table).refused().err
    assert Path(table).read_bytes() == before
    assert "which is a folder" in icda("predict", "model", table, "--out", ".").err


@pytest.fixture
def photos(tmp_path):
    return write_photos(tmp_path / "photos", 40)


def test_one_class_is_refused_before_anything_is_embedded(icda, photos):
    shutil.move(photos / "red", photos.parent / "red")
    answer = icda("fit", "photos").refused()
    assert "photos: all samples are of one class, blue; a classifier needs at least 2 classes." in answer.err
    assert not Path("model").exists()
    for data in ("photos/blue", "empty"):
        Path(data).mkdir(exist_ok=True)
        answer = icda("fit", data)
        assert "put the images of each into a folder of its own" in answer.err
        assert "--unlabelled" not in answer.err


def test_features_of_an_earlier_fit_are_made_again_on_request(icda, photos):
    Path("model").mkdir()
    np.savez("model/features.npz", fingerprint="of other images")
    assert "--overwrite makes it again" in icda("fit", "photos", "--image-size", 32).refused().err
    icda("fit", "photos", "--image-size", 32, "--overwrite").worked()


def test_a_network_is_trained_judged_and_used(icda, photos):
    (photos / "red" / "broken.png").write_bytes(b"no image")
    answer = icda("fit", "photos", "--train", "--epochs", 1, "--model", "small_cnn").refused()
    assert "broken.png" in answer.err
    assert "--resume" not in answer.err
    words = ("fit", "photos", "--train", "--epochs", 1, "--model", "small_cnn", "--skip-unreadable")
    answer = icda(*words).worked()
    assert "trained end to end with robust, which decides for itself what is wrong. What it found: " in answer.text
    assert "1 unreadable files were left out" in answer.out
    assert Path("model/plain/result.json").is_file()
    assert "the same network trained with cross entropy" in Path("model/page.html").read_text()
    answer = icda("predict", "model", "photos", "--skip-unreadable").worked()
    assert "40 predictions (blue " in answer.out  # the one that could not be read has none
    assert icda("eval", "model", "--data", "photos").code == 1
    judged = icda("eval", "model", "--data", "photos", "--skip-unreadable")
    assert "Judged: 40 samples (blue 20, red 20)" in judged.out
    icda("export", "model", "--safetensors", "w.safetensors").worked()


def test_a_named_test_part_is_judged_at_the_end_and_looked_at_by_nothing_before(icda, photos):
    """The audit, its pictures and the network see the training part alone."""
    for folder in ("red", "blue"):
        (photos / "train").mkdir(exist_ok=True)
        shutil.move(photos / folder, photos / "train" / folder)
        shutil.copytree(photos / "train" / folder, photos / "test" / folder)
    for path in photos.rglob("test/*/*.png"):
        path.rename(path.with_name(f"held_out_{path.name}"))
    answer = icda("fit", "photos", "--train", "--epochs", 1, "--model", "small_cnn", "--no-compare").worked()
    assert "Auditing 40 samples" in answer.err
    assert "the 40 samples of the test split, which were used for nothing else" in " ".join(answer.out.split())
    assert "held_out" not in Path("model/page.html").read_text()
    assert "held_out" not in Path("model/audit.csv").read_text()


def test_without_a_test_part_the_audit_leaves_out_what_the_trainer_will_judge_by(icda, photos):
    answer = icda("fit", "photos", "--train", "--epochs", 1, "--model", "small_cnn", "--no-compare").worked()
    assert "Auditing 32 samples" in answer.err


def test_training_begins_with_a_pretrained_network_unless_another_is_named():
    images, texts = (FitArguments(Path("data"), train=True).config(kind) for kind in ("image", "text"))
    assert (images.model, images.image_size) == ("efficientnet_lite0_frozen", 128)
    assert (texts.model, texts.optimizer, texts.weight_decay) == ("minilm_top3", "adam", 0.0)
    named = FitArguments(Path("data"), train=True, model="resnet20").config("image")
    assert (named.model, named.learning_rate, named.image_size) == ("resnet20", 0.1, 32)


def test_help_shows_examples_and_loads_no_torch():
    """Importing torch takes longer than all that --help has to do."""
    code = """import contextlib, sys
from icda.cli.main import main
for command in ("fit", "predict", "export", "train"):
    with contextlib.suppress(SystemExit):
        main([command, "--help"])
main(["--help"])
print("torch" in sys.modules)"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(f"Example: icda {command}" in ran.stdout for command in ("fit", "predict", "export"))
    assert ran.stdout.strip().endswith("False")
