"""Exported models answer as ours do: onnxruntime runs the graphs."""

import json

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors import safe_open

import icda
from icda.data.images import decode_image
from icda.serving.export import export_onnx, export_safetensors
from icda.serving.model import as_samples
from icda.training import TrainConfig, train

TOLERANCE = 1e-5


def run_onnx(path, **inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["logits"], inputs)[0]


def test_encoder_and_head_are_one_graph_from_bytes_to_logits(image_model, made, tmp_path):
    model = icda.load(image_model[0])
    path = export_onnx(model, tmp_path / "model.onnx")
    files = sorted(made.write_images(tmp_path / "new", 5, seed=3, classes=False).rglob("*.png"))
    expected = model.answer(as_samples(files, model.reads), range(5)).logits
    for count in (5, 1):  # the size of the batch is free
        images = np.stack([decode_image(file, 224) for file in files[:count]])
        assert np.abs(run_onnx(path, images=images) - expected[:count]).max() < TOLERANCE
    known = onnxruntime.InferenceSession(str(path)).get_modelmeta().custom_metadata_map
    assert json.loads(known["classes"]) == ["blue", "red"]


def test_a_text_model_takes_tokens_of_any_length(made, tmp_path):
    made.fit_to(made.write_texts(tmp_path / "texts.csv", 60), tmp_path / "model")
    model = icda.load(tmp_path / "model")
    path = export_onnx(model, tmp_path / "model.onnx")
    texts = ["a lovely film", "dull", "a much longer text of many words, " * 9]
    tokens = model.encoder._tokenise(texts)
    inputs = {name: tokens[name].numpy() for name in ("input_ids", "attention_mask")}
    expected = model.answer(as_samples(texts, model.reads), range(3)).logits
    assert np.abs(run_onnx(path, **inputs) - expected).max() < TOLERANCE


def test_a_head_on_features_keeps_its_precision(made, tmp_path):
    X, y = made.numbers()
    np.savez(tmp_path / "f.npz", X=X, y=y)
    made.fit_to(tmp_path / "f.npz", tmp_path / "model")
    model = icda.load(tmp_path / "model")
    path = export_onnx(model, tmp_path / "model.onnx")
    assert np.abs(run_onnx(path, features=X) - model.answer_features(X).logits).max() < 1e-12  # in float64


@pytest.mark.parametrize("method", ["icda", "tde", "co_teaching"])
def test_a_trained_network_answers_by_its_methods_rule(method, made, tmp_path):
    images = made.write_images(tmp_path / "photos")
    out = tmp_path / "run"
    train(TrainConfig(data=str(images), epochs=1, model="small_cnn", method=method, learning_rate=0.01, out=str(out)))
    model = icda.load(out)
    path = export_onnx(model, tmp_path / "run.onnx")
    files = sorted(images.rglob("*.png"))[:6]
    expected = model.answer(as_samples(files, model.reads), range(6)).logits
    pictures = np.stack([decode_image(file, 32) for file in files])
    assert np.abs(run_onnx(path, images=pictures) - expected).max() < TOLERANCE


def test_the_same_model_is_exported_as_the_same_bytes(image_model, tmp_path):
    """The library orders metadata by chance: of twenty files about half had another order."""
    model = icda.load(image_model[0])
    made = {export_safetensors(model, tmp_path / f"{k}.safetensors").read_bytes() for k in range(20)}
    assert len(made) == 1


def test_safetensors_hold_the_weights_and_name_the_classes(image_model, tmp_path):
    path = export_safetensors(icda.load(image_model[0]), tmp_path / "w.safetensors")
    with safe_open(path, "pt") as file:
        assert torch.equal(file.get_tensor("coef"), torch.from_numpy(image_model[1].model.coef))
        assert json.loads(file.metadata()["classes"]) == ["blue", "red"]
