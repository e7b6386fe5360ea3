from typing import Any

import torch

from icda.explain.pictures import data_uri
from icda.report.results import collect_runs
from icda.report.sections.comparison import compare_heatmaps, comparison, spreads

RUN = {"task": "waterbirds", "method": "icda", "selection": "last", "metrics": {"accuracy": 0.5}}
URI = data_uri(torch.zeros(1, 8, 8))


def test_the_comparison_needs_two_runs_and_says_common_things_once() -> None:
    assert comparison(collect_runs([RUN]), 2) == ""
    made = comparison(collect_runs([RUN, {**RUN, "method": "ce"}]), 2)
    assert "task: waterbirds; checkpoint kept by: last</span>" in made
    assert '<th scope="row" class="name">ce</th>' in made
    assert "Task</th>" in comparison(collect_runs([RUN, {**RUN, "task": "celeba"}]), 2)


def test_seeds_of_one_method_get_headline_cards_with_their_deviation() -> None:
    made = comparison(collect_runs([RUN, {**RUN, "seed": 1, "metrics": {"accuracy": 0.7}}]), 2)
    assert '<span class="value spread">60.00 ± 14.14 %</span>' in made
    assert "spread" not in comparison(collect_runs([RUN, {**RUN, "method": "ce"}]), 2)


def test_figures_can_be_chosen_where_there_are_several() -> None:
    both = {"accuracy": 0.5, "worst_class_accuracy": 0.1}
    runs = collect_runs([{**RUN, "metrics": both}, {**RUN, "method": "ce", "metrics": both}])
    made = comparison(runs, 2)
    assert 'data-column="2"' in made
    assert 'data-column="3"' in made
    assert "data-column" not in comparison(collect_runs([RUN, {**RUN, "method": "ce"}]), 2)


def test_methods_are_drawn_with_their_spread_and_one_method_is_not() -> None:
    runs = [RUN, {**RUN, "metrics": {"accuracy": 0.7}}, {**RUN, "method": "ce"}]
    made = spreads(collect_runs(runs), 2)
    assert "icda\n60 % ± 14 % (2 runs)" in made
    assert spreads(collect_runs(runs[:2]), 2) == ""


def heat(*numbers: int) -> dict[str, Any]:
    sample = {"target": 0, "prediction": 0, "picture": URI, "heat": URI, "centre_share": 0.5}
    return {"gradcam": {"samples": [{"index": number, **sample} for number in numbers]}}


def test_heat_stands_side_by_side_for_samples_that_runs_share() -> None:
    runs = [RUN, {**RUN, "method": "ce"}, {**RUN, "method": "isda"}]
    made = compare_heatmaps(collect_runs(runs, [heat(1, 2), heat(2, 3), None]), 2)
    assert made.count('class="heat-row"') == 1
    assert made.count("<img") == 3
    assert "sample 2" in made
    assert "sample 1<" not in made


def test_heat_of_different_tasks_is_not_compared() -> None:
    runs = collect_runs([RUN, {**RUN, "task": "celeba"}], [heat(1), heat(1)])
    assert compare_heatmaps(runs, 2) == ""
