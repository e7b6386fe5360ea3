import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def arrays():
    """Two classes of which the second half is another split, in which the labels are swapped."""
    generator = np.random.default_rng(0)
    y = np.tile([0, 1], 60)
    X = generator.normal(size=(120, 6)) + 3 * y[:, None]
    split = np.repeat([0, 1], 60)
    return {"feats": X.astype(np.float16), "kind": np.where(split == 1, 1 - y, y), "split": split}


@pytest.fixture
def file(arrays, tmp_path):
    np.savez(tmp_path / "own.npz", **arrays)
    return "own.npz"


def test_a_file_of_icda_embed_is_audited_as_it_is(icda, arrays):
    names = np.array(["cat", "dog"])[arrays["split"] ^ arrays["kind"]]
    texts = {"encoder": np.array("e"), "encoder_version": np.array("1"), "skipped": np.array([], dtype=str)}
    ids = np.array([f"{name}/{i}.jpg" for i, name in enumerate(names)])
    np.savez("f.npz", features=arrays["feats"].astype(np.float32), y=names, id=ids, **texts)
    answer = icda("audit", "f.npz", "--out", "found", "--top", 3).worked()
    assert "120 samples, 6 features, 2 classes" in answer.out
    assert "Nothing found that calls for more than plain training." in answer.out
    assert "found/audit.html" in answer.out
    assert sorted(path.name for path in Path("found").iterdir()) == ["audit.csv", "audit.html", "audit.json"]
    found = json.loads(Path("found/audit.json").read_text())
    assert found["class_names"] == ["cat", "dog"]
    assert found["samples"][0]["name"].startswith(("cat/", "dog/"))
    assert len(Path("found/audit.csv").read_text().splitlines()) == 121


def test_arrays_are_named_and_rows_are_chosen(icda, file):
    words = ("audit", file, "--labels", "kind", "--top", 0)
    chosen = icda(*words, "--where", "split=0", "--out", "half").worked()
    assert "60 samples" in chosen.out
    assert json.loads(Path("half/audit.json").read_text())["label_noise"]["rate"] == 0
    mixed = icda(*words, "--out", "all")  # where half the labels are swapped, features say nothing
    assert "uninformative features" in mixed.out
    assert mixed.code == 0


def test_a_table_and_a_pair_of_arrays_say_the_same(icda, arrays):
    X, y = arrays["feats"][:60].astype(np.float32), arrays["kind"][:60]
    np.save("x.npy", X)
    np.save("y.npy", y)
    lines = [",".join(["id", *map(str, map(float, row)), "word", str(label)]) for row, label in zip(X, y, strict=True)]
    Path("t.csv").write_text("\n".join(["id,a,b,c,d,e,f,remark,kind", *lines]))
    pair = icda("audit", "x.npy", "--labels", "y.npy", "--out", "pair")
    table = icda("audit", "t.csv", "--label-column", "kind", "--out", "table")
    assert (pair.code, table.code) == (0, 0), pair.err + table.err
    ranks = [json.loads(Path(folder, "audit.json").read_text())["samples"] for folder in ("pair", "table")]
    assert [row["index"] for row in ranks[0]] == [row["index"] for row in ranks[1]]


def write_table(arrays, change):
    """t.csv of two features and a remark; `change` puts other texts into cells, named by line and column."""
    header = ["a", "b", "remark", "part", "kind"]
    X, part = arrays["feats"].astype(np.float32), arrays["split"]
    lines = [",".join(header)]
    for line, (row, name, label) in enumerate(zip(X, part, arrays["kind"] ^ part, strict=True), start=2):
        cells = dict(zip(header, [*map(str, map(float, row[:2])), "word", str(name), str(label)], strict=True))
        cells |= {column: text for (place, column), text in change.items() if place == line}
        lines.append(",".join(cells[column] for column in header))
    Path("t.csv").write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *(
            ({(7, "b"): text, (30, "b"): "?"}, f"'b' in 2 of 120 (first in line 7: {text!r})")
            for text in ("", " ", "n/a", "1.5 cm")
        ),
        ({(line, "b"): "" for line in range(2, 112)}, "'b' in 110 of 120 (first in line 2"),  # few numbers and no text
    ],
)
def test_a_hole_in_a_column_of_numbers_is_named(icda, arrays, change, said):
    write_table(arrays, change)
    assert said in icda("audit", "t.csv", "--label-column", "kind").refused().err


def test_texts_and_empty_columns_are_left_out(icda, arrays):
    numbers = {(line, "remark"): "7" for line in range(2, 20)}
    write_table(arrays, numbers | {(line, "b"): "" for line in range(2, 122)})
    answer = icda("audit", "t.csv", "--label-column", "kind", "--where", "part=0").worked()
    assert "60 samples, 1 features, 2 classes" in answer.out


def test_holes_in_rows_that_are_not_kept_do_not_matter(icda, arrays):
    write_table(arrays, {(100, "b"): ""})
    answer = icda("audit", "t.csv", "--label-column", "kind", "--where", "part=0").worked()
    assert "60 samples, 2 features, 2 classes" in answer.out
    assert "in line 100: ''" in icda("audit", "t.csv", "--label-column", "kind", "--where", "part=1").err


def test_cleanlab_is_used_on_request(icda, file):
    answer = icda("audit", file, "--labels", "kind", "--where", "split=0", "--cleanlab").worked()
    assert "marked by cleanlab" in answer.text


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["nowhere.npz"], "is not there"),
        (["own.txt"], "expected .npz, .csv, .parquet or .npy"),
        (
            ["own.npz"],
            "target, class); it has feats, kind, split. Name it with --label-column",
        ),
        (["own.npz", "--labels", "knid"], "did you mean 'kind'?"),
        (["own.npz", "--labels", "kind", "--features", "fetas"], "did you mean 'feats'?"),
        (["own.npz", "--labels", "kind", "--where", "split"], "must be NAME=VALUE"),
        (["own.npz", "--labels", "kind", "--where", "split=7"], "split has the values 0, 1"),
        (["own.npz", "--labels", "kind", "--where", "splt=0"], "did you mean 'split'?"),
        (["own.npz", "--labels", "feats"], "one value per row, 120 in all, got (120, 6)"),
        (["own.npz", "--labels", "kind", "--folds", "1"], "folds must be a whole number of at least 2"),
        (["own.npz", "--labels", "kind", "--top", "-1"], "expected 0 or more"),
        (["own.npz", "--labels", "kind", "--out", "own.npz"], "expected a folder"),
        (["own.npz", "--labels", "kind", "--where", "kind=0"], "at least 2 classes, got one class"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_ends_in_one_line(words, hint, icda, file):
    answer = icda("audit", *words).refused()
    assert hint in answer.err
    assert answer.err.count("\n") == 1


def test_a_column_that_only_numbers_the_rows_is_no_feature(icda):
    generator = np.random.default_rng(0)
    labels = np.repeat(["a", "b"], 40)  # sorted by label: the index would tell them all
    noise = generator.normal(size=(80, 2))
    rows = [f"{i},{noise[i, 0]:.3f},{noise[i, 1]:.3f},{labels[i]}" for i in range(80)]
    Path("table.csv").write_text("\n".join([",noise,more,label", *rows]))
    icda("audit", "table.csv", "--out", "found").worked()
    notes = json.loads(Path("found/audit.json").read_text())["notes"]
    assert "Features: noise, more." in notes
    assert "Left out, since they only number the rows: (no name)." in notes


def test_a_parquet_file_is_audited_like_the_same_table(icda):
    generator = np.random.default_rng(0)
    y = np.tile([0, 1], 60)
    X = (generator.normal(size=(120, 3)) + 2 * y[:, None]).astype(np.float32)
    columns = {f"x{k}": X[:, k] for k in range(3)}
    pq.write_table(pa.table({**columns, "label": y, "index": np.arange(120)}), "table.parquet")
    np.savez("table.npz", X=X, y=y)
    for name in ("table.parquet", "table.npz"):
        icda("audit", name, "--out", name.replace(".", "_")).worked()
    tables = [json.loads(Path(f"table_{kind}/audit.json").read_text()) for kind in ("parquet", "npz")]
    assert tables[0]["label_noise"] == tables[1]["label_noise"]
    assert "Left out, since they only number the rows: index." in tables[0]["notes"]


def test_row_numbers_and_answers_are_no_features_whatever_rows_are_chosen(icda):
    generator = np.random.default_rng(0)
    lines = ["row,f,y,group_code,label,split"]
    for i in range(120):
        split = "train" if generator.random() < 0.7 else "test"
        lines.append(f"{i},{generator.normal():.3f},{i % 2},{i % 3},{'ab'[i % 2]},{split}")
    Path("table.csv").write_text("\n".join(lines))
    icda("audit", "table.csv", "--label-column", "label", "--where", "split=train", "--out", "found").worked()
    notes = json.loads(Path("found/audit.json").read_text())["notes"]
    assert "Features: f." in notes
    assert "Left out, since they only number the rows: row." in notes
    assert "Left out, since their names say label, group or split: y, group_code, split." in notes


@pytest.mark.parametrize("broken", ["nan", "text", "line"])
def test_features_that_cannot_be_audited_are_the_users_to_repair(broken, icda):
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.tile([0, 1], 20)
    features = {"nan": np.where(X > 2, np.nan, X), "text": X.astype(str), "line": X[:, 0]}[broken]
    features = np.full_like(X, np.nan) if broken == "nan" else features
    np.savez("f.npz", X=np.char.add(features, "x") if broken == "text" else features, y=y)
    icda("audit", "f.npz").refused()
