from icda.results.ledger import COLUMNS, to_row, write_ledger
from icda_bench.ledger import add_to_ledger, read_ledger


def result(**changes):
    return {
        "task": "digits_lt",
        "method": "icda",
        "seed": 0,
        "split": "test",
        "selection": "last",
        "model": "small_cnn",
        "seconds": 1.5,
        "metrics": {"accuracy": 0.5, "worst_group_accuracy": None},
        "config": {"epochs": 3, "options": {"lambda0": 0.25, "beta": 0}},
        "config_hash": "abc",
        "data_hash": "0123456789abcdef",
        "environment": {"commit": None, "processor": "chip", "cores": 2, "torch": "2.13.0"},
        **changes,
    }


def test_a_row_has_figures_or_blanks_options_hash_and_machine():
    row = to_row(result(), "smoke")
    assert row["accuracy"] == "0.500000"
    assert row["worst_group_accuracy"] == row["nll"] == row["train_accuracy"] == ""
    told = [row[name] for name in ("options", "data_hash", "machine")]
    assert told == ["beta=0 lambda0=0.25", "0123456789ab", "chip, 2 cores"]
    assert row["groups"] == row["code"] == ""  # an older version's result has none
    metrics = {"per_group_accuracy": {"a": 2 / 3, "b": None, "c": 1.0}}
    facts = {**result()["environment"], "code": "0a1b2c"}
    row = to_row(result(metrics=metrics, group_samples=[3, 0, 7], environment=facts), "cpu")
    assert (row["groups"], row["code"]) == ("2/3 0/0 7/7", "0a1b2c")
    history = [{"train_accuracy": 0.5}, {"train_accuracy": 0.75}]
    assert to_row(result(history=history), "cpu")["train_accuracy"] == "0.750000"


def test_rows_are_sorted_and_come_back_as_written(tmp_path):
    rows = [to_row(result(seed=seed), "smoke") for seed in (10, 2, 0)]
    write_ledger(tmp_path / "deep" / "x.csv", rows)
    back = read_ledger(tmp_path / "deep" / "x.csv")
    assert [row["seed"] for row in back] == ["0", "2", "10"]
    assert list(back[0]) == list(COLUMNS)
    assert sorted(map(str, back)) == sorted(map(str, rows))


def test_a_cell_run_again_takes_the_place_of_its_row_and_no_other(tmp_path):
    path = tmp_path / "results" / "x.csv"
    for seed in (1, 0):
        add_to_ledger(path, to_row(result(seed=seed), "cpu"))
    add_to_ledger(path, to_row(result(seed=1, config_hash="new"), "cpu"))
    add_to_ledger(path, to_row(result(seed=1), "paper"))
    add_to_ledger(path, to_row(result(seed=1, model="mlp"), "cpu"))
    assert [(row["tier"], row["model"], row["seed"], row["config_hash"]) for row in read_ledger(path)] == [
        ("cpu", "mlp", "1", "abc"),
        ("cpu", "small_cnn", "0", "abc"),
        ("cpu", "small_cnn", "1", "new"),
        ("paper", "small_cnn", "1", "abc"),
    ]
    assert [file.name for file in path.parent.iterdir()] == ["x.csv"]
    add_to_ledger(path, to_row(result(seed=1), "paper") | {"precision": "bf16"})
    assert [row["precision"] for row in read_ledger(path)] == ["no"] * 4 + ["bf16"]


def test_a_ledger_written_by_an_earlier_version_can_be_added_to(tmp_path):
    path = tmp_path / "x.csv"
    old = [name for name in COLUMNS if name not in ("train_accuracy", "precision", "groups", "code")]
    row = to_row(result(), "cpu")
    path.write_text(",".join(old) + "\n" + ",".join(f'"{row[name]}"' for name in old) + "\n")
    add_to_ledger(path, to_row(result(seed=5), "cpu"))
    assert [(line["seed"], line["train_accuracy"]) for line in read_ledger(path)] == [("0", ""), ("5", "")]
    assert [line["precision"] for line in read_ledger(path)] == ["no", "no"]


def test_a_row_from_before_attributes_could_be_withheld_is_one_that_was_told_them(tmp_path):
    path = tmp_path / "x.csv"
    write_ledger(path, [to_row(result(), "cpu") | {"attributes": ""}])
    add_to_ledger(path, to_row(result(config_hash="new"), "cpu"))
    assert [(row["attributes"], row["config_hash"]) for row in read_ledger(path)] == [("known", "new")]
