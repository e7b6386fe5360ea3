import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

Command = Callable[..., Any]


def test_speed_prints_its_table_and_writes_it(icda: Command) -> None:
    words = ["bench", "speed", "--model", "mlp", "--steps", 1, "--batch-size", 4, "--no-grid"]
    answer = icda(*words, "--out", "results/speed.csv")
    assert answer.code == 0, answer.err
    with Path("results/speed.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["what"], row["method"], row["classes"]) for row in rows] == [
        *[(what, "icda", classes) for classes in ("10", "100") for what in ("mlp step", "head")],
        ("head", "icda", "1000"),
    ]
    for row in rows:
        assert row["ratio"] in answer.text
        assert row["torch"]
    assert "Written to results/speed.csv" in answer.out


def test_without_a_file_nothing_is_written(icda: Command) -> None:
    answer = icda("bench", "speed", "--model", "mlp", "--steps", 1, "--batch-size", 4, "--no-grid")
    assert answer.code == 0
    assert list(Path().iterdir()) == []


def test_an_unknown_bench_gives_the_known_ones(icda: Command) -> None:
    answer = icda("bench", "zzz")
    assert answer.code == 2
    assert "unknown bench 'zzz'. Known: speed" in answer.err
