import importlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from icda_bench import command
from icda_bench.rows import read_table
from icda_bench.suites.suite import SUITES

Command = Callable[..., Any]


def test_speed_prints_its_table_and_writes_it(icda):
    words = ["bench", "speed", "--model", "mlp", "--steps", 1, "--batch-size", 4, "--no-grid"]
    answer = icda(*words, "--out", "results/speed.csv")
    assert answer.code == 0, answer.err
    rows = read_table(Path("results/speed.csv"))
    ways = ["mlp step", "head", "head, N x C x A"]
    assert [row["what"] for row in rows] == [*ways, *ways, "head", "head, no logits"]
    for row in rows:
        assert f"| {row['method_ms']} | {row['ratio']} |" in answer.text


@pytest.mark.parametrize("name", command.BENCHES)
def test_help_explains_every_option(name, icda):
    answer = icda("bench", name, "--help")
    assert answer.code == 0
    module, _, function = command.BENCHES[name].function.rpartition(".")
    run = getattr(importlib.import_module(f"icda_bench.{module}"), function)
    for field in fields(get_type_hints(run)["options"]):
        shown = "PATH" if "Positional" in str(field.type) else f"--{field.name.replace('_', '-')}"
        assert shown in answer.out, field.name


def test_help_names_every_bench_in_80_columns(icda, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for words in (("bench",), ("bench", "--help")):
        answer = icda(*words)
        assert answer.code == 0
        unwrapped = " ".join(answer.out.split())
        assert all(f"{name} {bench.summary}" in unwrapped for name, bench in command.BENCHES.items())
        assert max(map(len, answer.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("sped",), "did you mean 'speed'?"),
        (("speed", "--step", "1"), "--steps INT"),
        (("speed", "--model", "resnet31", "--no-grid"), "did you mean 'resnet32'?"),
    ],
)
def test_a_typo_gives_the_right_word(words, hint, icda):
    answer = icda("bench", *words)
    assert answer.code != 0
    assert hint in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    ("name", "goes_on"), [("table2", True), ("embeddings", True), ("speed", False), ("table3", False)]
)
def test_an_interrupt_says_whether_the_same_command_goes_on(name, goes_on, icda, monkeypatch):
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", interrupted)
    answer = icda("bench", name)
    assert answer.code == 130
    assert ("goes on" in answer.err) == goes_on


SMOKE = ("--tier", "smoke", "--methods", "cross_entropy", "logit_adjustment", "icda")


def test_a_table_is_run_shown_and_written_and_a_second_call_trains_nothing(icda):
    answer = icda("bench", "table2", *SMOKE, "--jobs", 1, "--ledger", "results/table2.csv")
    assert answer.code == 0, answer.err
    for text in ("3/3", "smoke runs: digits_lt, small_cnn, 2 epochs; accuracy in per cent, no measurement", "ICDA"):
        assert text in answer.text
    for text in ("CIFAR-10", "81.69", "the paper", "not run here"):  # nothing that these runs say nothing of
        assert text not in answer.text
    rows = read_table(Path("results/table2.csv"))
    assert [row["method"] for row in rows] == ["cross_entropy", "icda", "logit_adjustment"]
    assert {(row["seed"], row["tier"]) for row in rows} == {("0", "smoke")}
    written = Path("results/table2.csv").read_text()
    stamps = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")}
    assert icda("bench", "table2", *SMOKE, "--jobs", 1, "--ledger", "results/table2.csv").code == 0
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")} == stamps
    assert Path("results/table2.csv").read_text() == written


def test_a_finished_table_is_shown_without_torch(icda):
    words = ["bench", "table2", *SMOKE, "--jobs", "1", "--out", "cells"]
    assert icda(*words).code == 0
    script = (
        "import sys; from icda.cli.main import main; code = main(sys.argv[1:]); "
        "sys.exit(code or 3 * ('torch' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "ICDA" in done.stdout


@pytest.fixture(scope="session")
def smoke_runs(tmp_path_factory):
    """One folder for the runs of all suites: a cell that two of them share is trained once, as for a user."""
    return tmp_path_factory.mktemp("smoke")


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_runs_its_smoke_tier_whole(name, icda, smoke_runs):
    answer = icda("bench", name, "--tier", "smoke", "--jobs", 1, "--ledger", f"{name}.csv", "--out", smoke_runs)
    assert answer.code == 0, answer.text
    assert "failed" not in answer.text


def test_a_failed_cell_is_reported_the_rest_are_kept_and_the_exit_code_says_so(icda, monkeypatch):
    from icda.training import grid

    def stumbling(config: Any, **settings: Any) -> Any:
        if config.method == "icda":
            raise RuntimeError("the lights went out")
        return train(config, **settings)

    train = grid.train
    monkeypatch.setattr(grid, "train", stumbling)
    answer = icda("bench", "table2", *SMOKE, "--jobs", 1, "--ledger", "table2.csv")
    assert answer.code == 1
    assert "failed: digits_lt, icda, seed 0: RuntimeError: the lights went out" in answer.text
    assert [row["method"] for row in read_table(Path("table2.csv"))] == ["cross_entropy", "logit_adjustment"]
    monkeypatch.setattr(grid, "train", train)
    assert icda("bench", "table2", *SMOKE, "--jobs", 1, "--ledger", "table2.csv").code == 0


def test_only_what_the_ledger_lacks_is_trained_and_the_rest_is_shown_from_it(icda):
    one = ("--tier", "smoke", "--methods", "icda")
    assert icda("bench", "table2", *one, "--jobs", 1, "--ledger", "a.csv", "--out", "x").code == 0
    text = Path("a.csv").read_text()
    accuracy = read_table(Path("a.csv"))[0]["accuracy"]
    Path("a.csv").write_text(text.replace(accuracy, "0.123000"))  # a figure that no training could give
    words = ("--jobs", 1, "--ledger", "a.csv", "--missing", "--out", "y")
    plan = icda("bench", "table2", *SMOKE, *words, "--dry-run")
    assert "3 cells: 1 done, 2 to run, about" in plan.text
    second = icda("bench", "table2", *SMOKE, *words)
    assert second.code == 0, second.err
    assert "2/2" in second.text
    assert "12.3" in second.text
    third = icda("bench", "table2", *SMOKE, *words)
    assert "3 cells: 3 done, 0 to run, nothing to wait for" in third.text
    assert "12.3" in third.text
    assert not list(Path("y").glob("**/icda/*"))


def test_a_row_of_another_tables_ledger_is_taken_over_where_the_cell_is_the_same(icda):
    words = ("--tier", "smoke", "--methods", "cross_entropy", "--jobs", 1)
    assert icda("bench", "table7", *words, "--ledger", "table7.csv", "--out", "x").code == 0
    answer = icda("bench", "table8", *words, "--ledger", "table8.csv", "--missing", "--out", "y")
    assert answer.code == 0, answer.err
    assert "1 cells: 1 done, 0 to run, nothing to wait for" in answer.text
    assert Path("table8.csv").read_text() == Path("table7.csv").read_text()
    assert not Path("y").exists()


def test_a_dry_run_lists_the_cells_and_runs_none(icda):
    answer = icda("bench", "table4", "--tier", "paper", "--methods", "icda", "--tasks", "flip_20", "--dry-run")
    assert answer.code == 0
    assert "open cifar10_flip_20, icda, seed 2" in answer.text
    assert "3 cells: 0 done, 3 to run" in answer.text
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("table2", "--methods", "idca"), "has no method 'idca'"),
        (("table2", "--tasks", "mnist"), "has no task 'mnist'"),
        (("table2", "--missing"), "--missing needs --ledger FILE"),
        (("table2", "--seeds", 0), "--seeds must be at least 1"),
        (("table2", "--figure", "x.png"), "--figure goes with ablation and sensitivity"),
        (("ablation", "--tier", "smoke", "--figure", "x.png"), "smoke runs are no measurement"),
        (("table3", "--tier", "smoke", "--networks", "vgg"), "has no network 'vgg'"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(icda, words, message):
    answer = icda("bench", *words)
    assert answer.code == 1
    assert message in answer.text
    assert list(Path().iterdir()) == []


def test_table3_measures_and_keeps_its_figures(icda):
    answer = icda("bench", "table3", "--tier", "smoke", "--ledger", "table3.csv")
    assert answer.code == 0, answer.err
    rows = read_table(Path("table3.csv"))
    assert [(row["network"], row["classes"]) for row in rows] == [("resnet32", "10"), ("resnet32", "100")]
