"""predict and eval read what the fit read: the same array, the same columns, the same digits."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


def draw(rows=400):
    return np.random.default_rng(0), np.arange(rows) % 2


def accuracy(icda, model, data, y):
    """By predict, which must agree with eval."""
    icda("predict", model, data, "--out", "p.csv").worked()
    with Path("p.csv").open() as file:
        labels = [row["label"] for row in csv.DictReader(file)]
    right = float(np.mean([label == str(k) for label, k in zip(labels, y.tolist(), strict=True)]))
    judged = icda("eval", model, "--data", data, "--json").worked()
    assert json.loads(judged.out)["metrics"]["accuracy"] == pytest.approx(right, abs=1e-6)
    return right


def test_seconds_since_1970_keep_their_digits_in_parquet(icda):
    generator, y = draw()
    seconds = 1.7e9 + 5 * generator.normal(size=len(y)) + 20 * y
    pq.write_table(pa.table({"seconds": seconds, "noise": generator.normal(size=len(y)), "label": y}), "t.parquet")
    with Path("t.csv").open("w", newline="") as file:
        table = pq.read_table("t.parquet").to_pylist()
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    for data in ("t.csv", "t.parquet"):
        icda("fit", data, "--out", f"of_{data}").worked()
    for model in ("of_t.csv", "of_t.parquet"):
        for data in ("t.csv", "t.parquet"):
            assert accuracy(icda, model, data, y) > 0.95, (model, data)
    icda("fit", "t.parquet", "--features", "seconds", "--on", "blocks", "--out", "blocks").worked()
    assert accuracy(icda, "blocks", "t.parquet", y) > 0.95


def test_the_array_of_the_fit_is_read_again(icda):
    generator, y = draw()
    X, Z = generator.normal(size=(len(y), 3)), generator.normal(size=(len(y), 3)) + 2 * y[:, None]
    np.savez("f.npz", X=X, Z=Z, y=y)
    icda("fit", "f.npz", "--features", "Z").worked()
    assert accuracy(icda, "model", "f.npz", y) > 0.95
    np.savez("only_x.npz", X=Z, y=y)
    refused = icda("predict", "model", "only_x.npz").refused()
    assert "no array 'Z', which the model was fitted to: name another with --column; it has X, y" in refused.err
    icda("predict", "model", "only_x.npz", "--column", "X").worked()


def test_a_usual_name_may_be_another_usual_name_elsewhere(icda):
    generator, y = draw()
    X = generator.normal(size=(len(y), 3)) + 3 * y[:, None]
    np.savez("f.npz", X=X, y=y)
    np.savez("g.npz", features=X, y=y)
    icda("fit", "f.npz").worked()
    assert accuracy(icda, "model", "g.npz", y) > 0.95


def test_columns_are_remembered_over_blocks(icda):
    generator, y = draw()
    columns = {f"f{k}": generator.normal(size=len(y)) + (4 * y if k == 2 else 0) for k in range(4)}
    pq.write_table(pa.table({**columns, "label": y}), "t.parquet", row_group_size=100)
    turned = dict(reversed(columns.items()))
    pq.write_table(pa.table({"label": y, "extra": y, **turned}), "turned.parquet")
    icda("fit", "t.parquet", "--features", "f", "--on", "blocks").worked()
    assert accuracy(icda, "model", "t.parquet", y) > 0.95
    assert accuracy(icda, "model", "turned.parquet", y) > 0.95


def test_a_fit_over_blocks_gives_the_same_bytes_again(icda):
    generator, y = draw()
    pq.write_table(pa.table({"f0": generator.normal(size=len(y)) + y, "label": y}), "t.parquet")
    for out in ("one", "two"):
        icda("fit", "t.parquet", "--features", "f", "--on", "blocks", "--out", out).worked()
    assert Path("one/model.json").read_bytes() == Path("two/model.json").read_bytes()
