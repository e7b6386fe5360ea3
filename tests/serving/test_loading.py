"""Model folders, whole, damaged and hostile."""

import json
import pickle
import struct
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import icda
from icda.errors import InputError, InputTypeError, MissingFileError, OperationError, UnreadableError
from icda.serving import predict_data
from icda.serving.folder import read_model, write_model
from icda.training import TrainConfig, train
from icda.training.evaluation import predict_split
from icda.training.run import load_folder, make_accelerator


@pytest.fixture
def folder(tmp_path):
    """A small head on two features."""
    reads = {"kind": "features", "width": 2, "columns": ["a", "b"]}
    facts = {"kind": "head", "classes": ["cat", "dog"], "reads": reads, "facts": {}}
    weights = {"coef": np.array([[1.0, 0.0], [0.0, 1.0]]), "intercept": np.zeros(2)}
    write_model(tmp_path / "model", facts, weights)
    return tmp_path / "model"


def change(folder, **facts):
    known = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**known, **facts}))


def test_a_model_is_what_its_files_say(folder):
    model = icda.load(folder)
    assert model.predict([[2.0, 1.0], [0.0, 1.0]]).tolist() == ["cat", "dog"]
    logits = np.array([[2.0, 1.0]])
    assert np.allclose(model.predict_proba(logits), np.exp(logits) / np.exp(logits).sum())
    assert model.embed([[2.0, 1.0]]).tolist() == [[2.0, 1.0]]


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        ({"format": "other"}, "lacks the mark"),
        ({"version": 99}, "reads up to 1: upgrade"),
        ({"version": "1; import os"}, "format version"),
        ({"kind": "pickle"}, "kind 'pickle'"),
        ({"classes": ["cat", "cat"]}, "a name of its own"),
        ({"classes": ["cat"]}, "at least two classes"),
        ({"classes": "cats"}, "at least two classes"),
        ({"classes": ["cat", 7]}, "all texts or all numbers"),
        ({"classes": [["a"], ["b"]]}, "all texts or all numbers"),
        ({"classes": ["cat", "dog", "emu"]}, "coef must be floats of shape \\(3, 2\\)"),
        ({"reads": {"kind": "shell", "width": 2}}, "does not say what the model reads"),
        ({"reads": {"kind": "features", "width": "2"}}, "width must be .*, got '2'"),
        ({"reads": {"kind": "features", "width": True}}, "width must be .*, got True"),
        ({"reads": {"kind": "features", "width": 3}}, "of shape \\(2, 3\\)"),
        ({"reads": {"kind": "features", "width": 2, "columns": [1, 2]}}, "columns.*must be .*, got 1"),
        ({"reads": {"kind": "image", "width": 2, "encoder": ["rm"]}}, "encoder must be .*, got \\['rm'\\]"),
        ({"shortcut_points_to": [0, 9]}, "numbers of classes"),
        ({"shortcut_points_to": [0, 1]}, "shortcut_coef must be floats"),
    ],
)
def test_facts_of_a_stranger_are_checked(facts, complaint, folder):
    change(folder, **facts)
    with pytest.raises(InputError, match=complaint):
        icda.load(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"format": "icda-model"}'])
def test_a_damaged_description_is_one_sentence(content, folder):
    (folder / "model.json").write_bytes(content)
    with pytest.raises(InputError, match=r"model\.json"):
        icda.load(folder)


def test_weights_that_are_a_pickle_are_not_run(folder, tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "owned",))

    (folder / "weights.safetensors").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(InputError, match="no safetensors file"):
        icda.load(folder)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 7, struct.pack("<Q", 2**60) + b"{}", struct.pack("<Q", 2) + b"{}", b"\xff" * 64]
)
def test_damaged_weights_are_one_sentence(content, folder):
    (folder / "weights.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"weights\.safetensors"):
        icda.load(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(value, folder):
    facts, weights = read_model(folder)
    weights["coef"] = np.full((2, 2), value)
    write_model(folder, {key: facts[key] for key in facts if key not in ("format", "version")}, weights)
    with pytest.raises(InputError, match="NaN or infinite"):
        icda.load(folder)


@pytest.mark.parametrize("path", [None, 3, ["model"]])
def test_what_is_no_path_is_one_sentence(path):
    with pytest.raises(InputTypeError, match="load expects the path of a model's folder, got"):
        icda.load(path)


def test_a_missing_part_is_named(folder, tmp_path):
    (folder / "weights.safetensors").unlink()
    with pytest.raises(MissingFileError, match="not whole"):
        icda.load(folder)
    with pytest.raises(MissingFileError, match="holds no model"):
        icda.load(tmp_path)


def test_an_encoder_with_other_weights_is_refused(image_model, tmp_path):
    facts, weights = read_model(image_model[0])
    facts["reads"]["encoder_version"] = "efficientnet_lite0 9, weights 000000000000"
    write_model(tmp_path / "m", {key: facts[key] for key in facts if key not in ("format", "version")}, weights)
    model = icda.load(tmp_path / "m")
    with pytest.raises(OperationError, match="its features differ"):
        model.predict([tmp_path / "a.png"])


def test_what_a_file_names_is_not_fetched_from_a_hub(folder, tmp_path):
    change(folder, reads={"kind": "text", "width": 2, "encoder": "hf:somebody/anything"})
    with pytest.raises(UnreadableError, match="--allow-hub"):
        icda.load(folder).predict(["a text"])


@pytest.mark.parametrize("name", ["timm:resnet18", "timm:hf_hub:somebody/anything"])
def test_timm_is_not_asked_for_weights_that_a_file_names(name, folder, monkeypatch):
    asked = []
    timm = ModuleType("timm")
    timm.create_model = lambda target, **_: asked.append(target)
    monkeypatch.setitem(sys.modules, "timm", timm)
    change(folder, reads={"kind": "image", "width": 2, "encoder": name})
    with pytest.raises(InputError, match=f"the model '{name}' comes from a hub.*--allow-hub"):
        icda.load(folder).predict(["a.png"])
    assert asked == []


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        ([[1.0, 2.0, 3.0]], "fitted to \\(N, 2\\)"),
        ([[1.0, np.nan]], "NaN or infinite"),
        ([["a", "b"]], "must be numbers"),
        ("photos", "got a str"),
        ([], "got no inputs"),
        (["a text"], "reads features"),
    ],
)
def test_wrong_inputs_are_one_sentence(inputs, complaint, folder):
    with pytest.raises(InputError, match=complaint):
        icda.load(folder).predict(inputs)


def test_an_image_model_names_what_it_was_given(image_model):
    model = icda.load(image_model[0])
    with pytest.raises(InputError, match="reads image files, got a int"):
        model.predict([3])


@pytest.fixture(scope="module")
def runs(tmp_path_factory, made):
    """Short runs on own images and own texts, and one of a method with a rule of its own."""
    folder = tmp_path_factory.mktemp("runs")
    images, texts = made.write_images(folder / "photos"), made.write_texts(folder / "texts.csv")
    X, y = made.numbers()
    np.savez(folder / "features.npz", X=X, y=y)
    configs = {
        "features": TrainConfig(data=str(folder / "features.npz"), epochs=1, learning_rate=0.01, method="icda"),
        "image": TrainConfig(data=str(images), epochs=1, model="small_cnn", method="cross_entropy"),
        "text": TrainConfig(data=str(texts), epochs=1, method="post_hoc_logit_adjustment", learning_rate=0.01),
        "task": TrainConfig(task="digits_coloured", epochs=1, method="cross_entropy"),
        "shortcut": TrainConfig(data=str(images), epochs=1, model="small_cnn", method="shortcut_prior"),
    }
    for name, config in configs.items():
        train(TrainConfig(**{**vars(config), "out": str(folder / name)}))
    return {name: folder / name for name in configs}


@pytest.mark.parametrize(
    ("name", "kind"), [("image", "paths"), ("text", "texts"), ("shortcut", "paths"), ("features", "features")]
)
def test_a_run_answers_as_its_evaluation_does(name, kind, runs):
    _, task, networks, method = load_folder(runs[name])
    expected = predict_split(method, networks, task.test, make_accelerator("no"))
    items = getattr(task.test.source, kind)
    given = [items[row] for row in task.test.rows.tolist()]
    model = icda.load(runs[name])
    found = model.predict_proba(torch.stack(given).numpy() if name == "features" else given)
    assert np.array_equal(found, torch.softmax(expected, 1).numpy())
    assert model.classes.tolist() == list(task.class_names)


def test_a_run_on_features_says_how_many_it_takes(runs):
    with pytest.raises(InputError, match=r"fitted to \(N, 6\)"):
        icda.load(runs["features"]).predict(np.zeros((2, 5)))


def test_a_run_needs_no_training_data(runs, made, tmp_path):
    photos = runs["image"].parent / "photos"
    hidden = photos.rename(tmp_path / "elsewhere")
    try:
        model = icda.load(runs["image"])
        assert model.embed([next(hidden.rglob("*.png"))]).shape[0] == 1
    finally:
        hidden.rename(photos)


def test_an_image_run_does_not_take_features(runs):
    model = icda.load(runs["image"])
    with pytest.raises(InputError, match="reads images, not features"):
        model.predict(np.zeros((2, model.reads.width)))


def test_a_run_of_a_task_prepares_images_as_the_task_does(runs, made, tmp_path):
    model = icda.load(runs["task"])
    images = sorted(made.write_images(tmp_path / "new", 3, classes=False).rglob("*.png"))
    assert model.predict_proba(images).shape == (3, len(model.classes))


def test_biased_networks_say_what_the_shortcut_points_to(runs, made, tmp_path, monkeypatch):
    model = icda.load(runs["shortcut"])
    images = made.write_images(tmp_path / "new", 4, classes=False)
    assert predict_data(model, images).points_to is None  # the run saw no sign of a shortcut
    monkeypatch.setitem(model.method.found, "no_shortcut", 0.0)
    found = predict_data(model, images)
    files = [tmp_path / "new" / name for name in found.ids]
    batch = torch.stack([model.images([file]).fetch(torch.tensor([0]))[0] for file in files])
    with torch.no_grad():
        logits = [network.eval()(batch).logits.log_softmax(1) for network in model.networks[1:]]
    expected = model.classes[torch.stack(logits).mean(0).argmax(1).numpy()]
    assert found.points_to.tolist() == expected.tolist()


def test_a_checkpoint_that_is_a_pickle_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "owned",))

    torch.save({"networks": Evil()}, tmp_path / "model.pt")
    with pytest.raises(OperationError, match="not a checkpoint of icda"):
        icda.load(tmp_path)
    assert not (tmp_path / "owned").exists()
