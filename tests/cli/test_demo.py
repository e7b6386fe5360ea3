import json
from pathlib import Path

import pytest

from icda.cli import demo
from icda.cli.demo import METHODS, PICTURED, TASKS
from icda.errors import InputError


def test_the_demo_compares_every_method_on_every_task_and_is_not_run_twice(icda):
    words = ["demo", "--seeds", 1, "--epochs", 1, "--out", "demo"]
    answer = icda(*words).worked()
    cells = {(task, method): Path("demo", task, method, "seed0", "result.json") for task in TASKS for method in METHODS}
    for (task, method), path in cells.items():
        result = json.loads(path.read_text())
        assert (result["task"], result["method"], result["seed"]) == (task, method, 0)
        assert f"{100 * result['metrics']['accuracy']:.2f}" in answer.out
    assert all(story in answer.text for story in TASKS.values())
    assert f"{len(cells)} models" in answer.out
    told = " ".join(answer.out.split("What robust found")[1].split())
    for task in TASKS:
        found = json.loads(cells[task, "robust"].read_text())["found"]
        assert f"{task}: {' '.join(found.split())}" in told
    page = Path("demo/report.html")
    assert f"The page to open in a browser: {page}" in answer.out
    text = page.read_text()
    assert all(name in text for name in (*TASKS, *METHODS))
    for part in (
        "comparison",
        "spreads",
        "curves",
        "gradcam",
        "runs",
    ):  # the whole page, pictures side by side included
        assert f'id="{part}"' in text
    assert text.count('-counterfactuals"') == len(TASKS) * len(PICTURED)
    assert text.count('-margins"') == len(cells)
    written = {path: path.stat().st_mtime_ns for path in cells.values()}
    icda(*words).worked()
    assert {path: path.stat().st_mtime_ns for path in cells.values()} == written


@pytest.mark.parametrize(
    ("words", "planned"),
    [
        ((), (3, 30, "runs/demo")),
        (("--quick",), (1, 3, "runs/demo-quick")),
        (("--quick", "--epochs", 2, "--out", "look"), (1, 2, "look")),
    ],
    ids=["in full", "quick", "quick, with options beside it"],
)
def test_a_quick_look_is_short_goes_elsewhere_and_says_that_it_proves_nothing(words, planned, icda, monkeypatch):
    asked = []

    def plan(recipe, tasks, methods, seeds, *_):
        asked.append((seeds, recipe.epochs, recipe.out.removesuffix("/{task}/{method}/seed{seed}")))
        raise InputError("enough")

    monkeypatch.setattr(demo, "run_grid", plan)
    answer = icda("demo", *words)
    assert asked == [planned]
    assert ("too early to compare methods by" in answer.text) == ("--quick" in words)
