from typing import Any

from icda.report.results import collect_runs
from icda.report.sections.curves import learning_curve, learning_curves


def result(method: str, seed: int, *accuracies: float, task: str = "t") -> dict[str, Any]:
    history = [{"epoch": epoch, "validation_accuracy": value} for epoch, value in enumerate(accuracies)]
    return {"task": task, "method": method, "seed": seed, "history": history}


def test_the_curve_draws_only_what_the_history_has(run_of: Any) -> None:
    history = [{"epoch": 1, "train_loss": 2.0, "train_accuracy": 0.3}, {"epoch": 2, "train_loss": float("nan")}]
    made = learning_curve(run_of(history=history), 2)
    assert made.count("<figure") == 2
    assert "validation" not in made


def test_methods_are_overlaid_by_their_mean_and_tell_the_deviation() -> None:
    runs = collect_runs([result("a", 0, 0.5), result("a", 1, 0.75), result("b", 0, 0.125)])
    made = learning_curves(runs, 2)
    assert "Epoch 0\na: 62.5 % ± 18 %\nb: 12.5 %" in made
    assert "mean over the runs" in made


def test_seeds_of_one_method_get_a_line_each() -> None:
    made = learning_curves(collect_runs([result("a", 0, 0.5), result("a", 1, 0.75)]), 2)
    assert "Epoch 0\nseed 0: 50 %\nseed 1: 75 %" in made
    assert "mean over the runs" not in made


def test_tasks_are_never_drawn_into_one_picture() -> None:
    made = learning_curves(collect_runs([result("a", 0, 0.5), result("b", 0, 0.5, task="u")]), 2)
    assert made.count("<h3>") == made.count("<figure>") == 2
    assert learning_curves(collect_runs([{"task": "t", "method": "a"}] * 2), 2) == ""
