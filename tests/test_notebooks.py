"""Every notebook runs from its first cell to its last without a network, and what it shows is small."""

import json
import time
from pathlib import Path

import pytest

from support import load_module

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
RUNNER = load_module(ROOT / "tools/notebooks.py", "tools_notebooks")


def test_there_are_three_notebooks():
    assert {path.stem for path in NOTEBOOKS} == {"photos", "loop", "table"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_and_draws_what_is_kept_in_it(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    started = time.process_time()
    done = RUNNER.run_cells(json.loads(path.read_text()))
    assert time.process_time() - started < 120
    for cell, printed, figure in done:
        kinds = [output["output_type"] for output in cell["outputs"]]
        assert kinds == ["stream"] * bool(printed) + ["display_data"] * (figure is not None), "run `make pictures`"
    assert any(figure is not None for _, _, figure in done)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_of_the_usual_format_and_small(path):
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert path.stat().st_size < 100_000
    assert notebook["cells"][-1]["cell_type"] == "markdown"


def test_a_command_that_fails_fails_the_notebook():
    cell = {"cell_type": "code", "source": ["!exit 3"], "metadata": {}}
    with pytest.raises(RuntimeError, match="exit 3"):
        RUNNER.run_cells({"cells": [cell]})


def test_cells_share_their_names_and_commands_are_printed():
    cells = [{"cell_type": "code", "source": [text], "metadata": {}} for text in ("a = 2", "print(a + 1)\n!echo hello")]
    assert [printed for _, printed, _ in RUNNER.run_cells({"cells": cells})] == ["", "3\nhello\n"]
