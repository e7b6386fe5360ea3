"""What people get wrong every day is one sentence, never "a mistake in icda"; what can be read is read."""

import datetime
import decimal
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icda.data.embedding import Samples
from icda.data.embedding.samples import Reads
from icda.errors import InputError
from icda.serving.head import HeadModel

Y = np.arange(80) % 2
X = np.random.default_rng(0).normal(size=(80, 2)) + 2 * Y[:, None]


def sentence(answer):
    return answer.refused().err.strip().splitlines()[-1]


def write_parquet(path, labels, rows=80):
    pq.write_table(pa.table({"a": X[:rows, 0], "b": X[:rows, 1], "label": labels[:rows]}), path)
    return path


@pytest.mark.parametrize("content", ["cut off", "empty", "foreign", "without rows"])
def test_parquet_that_is_none_is_one_sentence(icda, content):
    icda("fit", write_parquet("good.parquet", Y)).worked()
    raw = Path("good.parquet").read_bytes()
    if content == "without rows":
        write_parquet("bad.parquet", Y, rows=0)
    else:
        spoiled = {"cut off": raw[: len(raw) // 2], "empty": b"", "foreign": b"no table at all " * 20}
        Path("bad.parquet").write_bytes(spoiled[content])
    for words in (
        ("fit", "bad.parquet", "--out", "other"),
        ("fit", "bad.parquet", "--features", "a", "--on", "blocks", "--out", "other"),
        ("audit", "bad.parquet"),
        ("predict", "model", "bad.parquet"),
        ("eval", "model", "--data", "bad.parquet"),
    ):
        assert "bad.parquet " in sentence(icda(*words)), words


def test_nothing_to_predict_is_one_sentence(icda):
    np.savez("f.npz", X=X, y=Y)
    np.savez("none.npz", X=X[:0])
    np.save("none.npy", X[:0])
    icda("fit", "f.npz").worked()
    for name in ("none.npz", "none.npy"):
        assert f"{name} has no rows: there is nothing to predict" in sentence(icda("predict", "model", name))


@pytest.mark.parametrize("seed", ["-1", str(2**70)])
@pytest.mark.parametrize("command", ["fit", "audit", "ask"])
def test_a_seed_that_is_none_is_one_sentence(icda, command, seed):
    np.savez("f.npz", X=X, y=Y)
    assert f"--seed is {seed}, expected 0 to" in sentence(icda(command, "f.npz", "--seed", seed))


DAYS = [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)]
LABELS = {
    "bytes": ([b"cat", b"dog"], ["cat", "dog"]),
    "dates": (DAYS, ["2020-01-01", "2021-01-01"]),
    "decimals": ([decimal.Decimal("1.5"), decimal.Decimal("2.5")], ["1.5", "2.5"]),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_type_are_names(icda, kind):
    values, names = LABELS[kind]
    write_parquet("t.parquet", [values[k] for k in Y])
    for way in ((), ("--on", "blocks", "--features", "a")):
        icda("fit", "t.parquet", "--overwrite", *way).worked()
        assert json.loads(Path("model/model.json").read_text())["classes"] == names
        icda("eval", "model", "--data", "t.parquet").worked()
    icda("audit", "t.parquet").worked()


def test_labels_of_an_npz_may_be_bytes_or_dates(icda):
    for labels in (np.array([b"cat", b"dog"]), np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]")):
        np.savez("f.npz", X=X, y=labels[Y])
        icda("fit", "f.npz", "--overwrite").worked()
        icda("audit", "f.npz").worked()


class Narrow:
    """An encoder of three features."""

    name, version, device, image_size, kind = "narrow", "1", "cpu", None, "text"

    def encode(self, inputs):
        import torch

        return torch.zeros(len(inputs), 3)


def test_an_encoder_of_another_width_is_one_sentence():
    reads = Reads("text", 5, encoder="narrow")
    model = HeadModel(np.array(["a", "b"]), np.zeros((2, 5)), np.zeros(2), reads)
    model.encoder = Narrow()
    with pytest.raises(InputError, match=r"narrow gives 3 features, and the model was fitted to 5"):
        model.answer(Samples(reads, [0], ["one"]), range(1))


@pytest.mark.parametrize("line", ["x,y", "x,y,0,small,0.5,more"])
def test_a_damaged_ledger_is_one_sentence(icda, line):
    Path("ledger.csv").write_text(f"task,method,seed,tier,accuracy\nx,y,0,small,0.5\n{line}\n")
    assert "ledger.csv, line 3: a row needs 5 cells" in sentence(icda("report", "ledger.csv", "--out", "r.html"))


def test_an_address_of_ray_that_is_none_is_one_sentence(icda, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setitem(os.environ, "RAY_ADDRESS", "garbage")
    write_parquet("t.parquet", Y)
    answer = icda("fit", "t.parquet", "--features", "a", "--on", "ray", "--jobs", "1")
    assert "no Ray answers at RAY_ADDRESS=garbage" in sentence(answer)
