"""Texts all the way: a random DistilBERT with its tokeniser, trained, killed, resumed, evaluated, explained."""

import json

import pytest
import torch

from icda.training import TrainConfig, train
from icda.training.run import evaluate_folder, load_folder, load_task
from support import WORDS, write_text_model

PADDING = WORDS.index("[PAD]")
SHARES = ["train"] * 6 + ["validation", "test", "test", "metadata"]
STEPS = 48 // 8


@pytest.fixture
def model(tmp_path):
    """hf:FOLDER of a DistilBERT of two layers with its tokeniser."""
    return f"hf:{write_text_model(tmp_path / 'distilbert', n_layers=2, max_position_embeddings=16)}"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "films.csv"
    rows = [
        f"{'a ' * (row // 2 % 4)}{'good' if row % 2 else 'bad'} film,{row % 2},{SHARES[row // 2 % 10]}"
        for row in range(80)
    ]
    path.write_text("text,label,split\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def configure(tmp_path, table, model):
    def make(name, **settings):
        usual = {"epochs": 6, "batch_size": 8, "optimizer": "adam", "learning_rate": 5e-3, "schedule": "constant"}
        where = {"data": str(table), "model": model, "out": str(tmp_path / name)}
        return TrainConfig(**{**usual, **where, **settings})

    return make


@pytest.mark.parametrize("method", ["icda", "meta_icda"])
def test_a_killed_run_goes_on_to_the_same_result(method, assert_resumes):
    assert_resumes(STEPS + 3, method=method, epochs=2)


def test_a_transformer_learns_and_is_evaluated_and_explained(configure, tmp_path):
    config = configure("run", method="meta_icda", epochs=20)
    result = train(config)
    assert result["metrics"]["accuracy"] == 1
    explanations = json.loads((config.folder() / "explanations.json").read_text())
    assert {"margins", "strengths", "tied"} <= set(explanations)
    assert (config.folder() / "report.html").stat().st_size > 0
    again = evaluate_folder(config.folder())
    assert again["metrics"] == result["metrics"]
    other = tmp_path / "other.csv"
    rows = ["a bad film,0,train", "a good film,1,train", "bad film,1,test", "good film,0,test"]
    rows += ["good,1,metadata", "bad,0,metadata"]
    other.write_text("text,label,split\n" + "\n".join(rows) + "\n")
    assert evaluate_folder(config.folder(), data=str(other))["metrics"]["accuracy"] == 0


def test_a_stored_run_reads_texts_with_the_tokeniser_of_its_model(configure):
    config = configure("run", method="ce", epochs=1)
    train(config)
    _, task, networks, _ = load_folder(config.folder())
    inputs = task.train.batch(torch.arange(4)).inputs
    assert inputs["input_ids"][:, 0].tolist() == [1] * 4
    assert int(inputs["input_ids"].max()) < len(WORDS)
    assert (inputs["input_ids"][inputs["attention_mask"] == 0] == PADDING).all()
    assert networks[0].encoder.network.config.pad_token_id == PADDING


def test_the_same_table_is_hashed_for_a_bag_of_words(configure):
    hashed = load_task(configure("run", model=None))
    assert int(hashed.train.batch(torch.arange(4)).inputs["input_ids"].max()) > len(WORDS)
    assert hashed.data_hash != load_task(configure("run")).data_hash


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "resnet20"}, "'resnet20' does not read texts"),
        ({"data": None, "task": "digits_lt"}, "reads texts, but the samples of task 'digits_lt'"),
        ({"model": "bag_of_word"}, "did you mean 'bag_of_words'"),
    ],
)
def test_a_model_that_cannot_read_the_samples_is_refused_before_anything_is_written(configure, settings, message):
    config = configure("run", **settings)
    with pytest.raises(ValueError, match=message):
        train(config)
    assert not config.folder().exists()
