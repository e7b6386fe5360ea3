"""The sections of the page: what each shows of a run, and what it leaves out."""

import re

import pytest
import torch

from icda.explain.pictures import data_uri
from icda.report.results import collect_runs
from icda.report.sections.breakdown import confusion, per_class, per_group
from icda.report.sections.comparison import compare_heatmaps, comparison, spreads
from icda.report.sections.curves import learning_curve, learning_curves
from icda.report.sections.overview import configuration, environment, headline, what_was_run
from icda.report.sections.samples import AT_ONCE, counterfactuals, gradcam, picture, sample, tied
from icda.report.sections.strengths import margins, strengths, variances


def test_what_was_run_leaves_out_what_is_unknown(run_of):
    made = what_was_run(run_of(seed=0, class_counts=[500, 5], confusion=[[8, 2], [1, 9]]), 2)
    assert "<dt>Seed</dt><dd>0</dd>" in made
    assert "505 samples, 2 classes, the largest 100 times the smallest" in made
    assert "test split, 20 samples" in made
    assert "Data hash" not in made


def test_the_headline_names_the_worst_class_and_group(run_of):
    metrics = {"accuracy": 0.7, "per_class_accuracy": [0.9, None, 0.5], "per_group_accuracy": {"dry": 0.4, "wet": None}}
    made = headline(run_of(metrics=metrics, class_names=["a", "b", "c"]), 2)
    assert (
        "70.0 % of the test samples are classified correctly, 50.0 % in the worst class (c) "
        "and 40.0 % in the worst group (dry)." in made
    )
    assert "interval" not in made  # nobody said how many samples that rests on


def test_an_interval_comes_with_its_rule_and_what_it_leaves_out(run_of):
    metrics = {"accuracy": 0.85, "balanced_accuracy": 0.85, "per_class_accuracy": [0.8, 0.9]}
    made = headline(run_of(metrics=metrics, confusion=[[8, 2], [1, 9]]), 2)
    assert '<span class="interval">64.0 – 94.8 %</span>' in made
    assert "Wilson, bootstrap within classes or groups" in made
    assert "run several seeds" in made


def test_a_metric_we_do_not_know_is_shown_under_its_name(run_of):
    made = headline(run_of(metrics={"my_score": 1.25, "few_accuracy": None}), 2)
    assert "<dt>my_score</dt>" in made
    assert "1.250" in made
    assert "Few-shot" not in made


def test_settings_that_were_not_set_are_left_out(run_of):
    made = configuration(run_of(config={"lr": 0.1, "clip": None, "options": {}, "seed": 0}), 2)
    assert "<code>lr</code>" in made
    assert "<code>seed</code>" in made
    assert "clip" not in made
    assert "options" not in made
    assert environment(run_of(environment={"commit": None}), 2) == ""


def test_an_absent_class_says_so_and_has_no_bar(run_of):
    made = per_class(run_of(metrics={"per_class_accuracy": [0.5, None]}, class_counts=[7]), 2)
    assert made.count('class="bar"') == 1
    assert "no sample in this split" in made


def test_many_classes_come_worst_first_in_a_box_of_their_own(run_of):
    accuracies = [i / 100 for i in range(100)][::-1]
    made = per_class(run_of(metrics={"per_class_accuracy": accuracies}), 2)
    assert "100 classes, worst first" in made
    assert made.count("<tr") == 101
    assert made.index(">99<") < made.index(">98<")
    assert 'class="tall"' in made


def test_rows_carry_their_filters_and_intervals(run_of):
    metrics = {"per_class_accuracy": [0.8, 0.9], "per_group_accuracy": {"day": 0.5}}
    run = run_of(metrics=metrics, class_names=["cat", "dog"], confusion=[[8, 2], [1, 9]], group_samples=[10])
    classes, groups = per_class(run, 2), per_group(run, 2)
    assert '<tr data-class="c1"><th scope="row" class="name">dog</th>' in classes
    assert "<td>49 – 94</td>" in classes
    assert '<tr data-group="g0">' in groups
    assert "<td>24 – 76</td>" in groups


def test_a_long_tail_is_drawn_over_class_size_and_equal_classes_are_not(run_of):
    metrics = {"per_class_accuracy": [0.5] * 6}
    assert 'class="point"' in per_class(run_of(metrics=metrics, class_counts=[100, 50, 20, 10, 5, 2]), 2)
    assert 'class="point"' not in per_class(run_of(metrics=metrics, class_counts=[10] * 6), 2)


def test_small_confusion_is_a_table_with_the_mistakes_listed(run_of):
    made = confusion(run_of(confusion=[[3, 1], [0, 0]]), 2)
    assert "true 0, predicted 1\n1 samples, 25.0 % of the class" in made
    assert "The most frequent of 1 kinds of mistakes (1 samples in all)" in made
    assert "mistakes (" not in confusion(run_of(confusion=[[3, 0], [0, 2]]), 2)
    with pytest.raises(ValueError, match=r"got 2 rows of \[1, 2\]"):
        confusion(run_of(confusion=[[1, 2], [3]]), 2)


def test_large_confusion_is_a_picture_with_the_mistakes_listed(run_of):
    large = [[10 if i == j else 0 for j in range(50)] for i in range(50)]
    large[7][9] = 5
    made = confusion(run_of(confusion=large), 2)
    assert 'class="pixels"' in made
    assert ">7</th>" in made
    assert "33.3 %" in made
    assert made.count("<tr") == 2


def test_every_class_has_its_most_frequent_mistakes_listed(run_of):
    matrix = [[100 - i + j if i != j else 500 for j in range(30)] for i in range(30)]
    made = confusion(run_of(confusion=matrix), 2)
    rows = re.findall(r'<th scope="row" class="name">(\d+)</th><td class="name">(\d+)</td><td>(\d+)</td>', made)
    assert {true for true, *_ in rows} == {str(i) for i in range(30)}
    assert [int(count) for *_, count in rows] == sorted((int(count) for *_, count in rows), reverse=True)
    assert [predicted for true, predicted, _ in rows if true == "29"] == ["28", "27", "26"]
    assert "870 kinds of mistakes" in made


def result(method, seed, *accuracies, task="t"):
    history = [{"epoch": epoch, "validation_accuracy": value} for epoch, value in enumerate(accuracies)]
    return {"task": task, "method": method, "seed": seed, "history": history}


def test_the_curve_draws_only_what_the_history_has(run_of):
    history = [{"epoch": 1, "train_loss": 2.0, "train_accuracy": 0.3}, {"epoch": 2, "train_loss": float("nan")}]
    made = learning_curve(run_of(history=history), 2)
    assert made.count("<figure") == 2
    assert "validation" not in made


def test_methods_are_overlaid_by_their_mean_and_tell_the_deviation():
    runs = collect_runs([result("a", 0, 0.5), result("a", 1, 0.75), result("b", 0, 0.125)])
    made = learning_curves(runs, 2)
    assert "Epoch 0\na: 62.5 % ± 18 %\nb: 12.5 %" in made
    assert "mean over the runs" in made


def test_seeds_of_one_method_get_a_line_each():
    made = learning_curves(collect_runs([result("a", 0, 0.5), result("a", 1, 0.75)]), 2)
    assert "Epoch 0\nseed 0: 50 %\nseed 1: 75 %" in made
    assert "mean over the runs" not in made


def test_tasks_are_never_drawn_into_one_picture():
    made = learning_curves(collect_runs([result("a", 0, 0.5), result("b", 0, 0.5, task="u")]), 2)
    assert made.count("<h3>") == made.count("<figure>") == 2
    assert learning_curves(collect_runs([{"task": "t", "method": "a"}] * 2), 2) == ""


RUN = {"task": "waterbirds", "method": "icda", "selection": "last", "metrics": {"accuracy": 0.5}}
URI = data_uri(torch.zeros(1, 8, 8))


def test_the_comparison_needs_two_runs_and_says_common_things_once():
    assert comparison(collect_runs([RUN]), 2) == ""
    made = comparison(collect_runs([RUN, {**RUN, "method": "ce"}]), 2)
    assert "task: waterbirds; checkpoint kept by: last</span>" in made
    assert '<th scope="row" class="name">ce</th>' in made
    assert "Task</th>" in comparison(collect_runs([RUN, {**RUN, "task": "celeba"}]), 2)


def test_seeds_of_one_method_get_headline_cards_with_their_deviation():
    made = comparison(collect_runs([RUN, {**RUN, "seed": 1, "metrics": {"accuracy": 0.7}}]), 2)
    assert '<span class="value spread">60.00 ± 14.14 %</span>' in made
    assert "spread" not in comparison(collect_runs([RUN, {**RUN, "method": "ce"}]), 2)


def test_figures_can_be_chosen_where_there_are_several():
    both = {"accuracy": 0.5, "worst_class_accuracy": 0.1}
    runs = collect_runs([{**RUN, "metrics": both}, {**RUN, "method": "ce", "metrics": both}])
    made = comparison(runs, 2)
    assert 'data-column="2"' in made
    assert 'data-column="3"' in made
    assert "data-column" not in comparison(collect_runs([RUN, {**RUN, "method": "ce"}]), 2)


def test_methods_are_drawn_with_their_spread_and_one_method_is_not():
    runs = [RUN, {**RUN, "metrics": {"accuracy": 0.7}}, {**RUN, "method": "ce"}]
    made = spreads(collect_runs(runs), 2)
    assert "icda\n60 % ± 14 % (2 runs)" in made
    assert spreads(collect_runs(runs[:2]), 2) == ""


def heat(*numbers):
    sample = {"target": 0, "prediction": 0, "picture": URI, "heat": URI, "centre_share": 0.5}
    return {"gradcam": {"samples": [{"index": number, **sample} for number in numbers]}}


def test_heat_stands_side_by_side_for_samples_that_runs_share():
    runs = [RUN, {**RUN, "method": "ce"}, {**RUN, "method": "isda"}]
    made = compare_heatmaps(collect_runs(runs, [heat(1, 2), heat(2, 3), None]), 2)
    assert made.count('class="heat-row"') == 1
    assert made.count("<img") == 3
    assert "sample 2" in made
    assert "sample 1<" not in made


def test_heat_of_different_tasks_is_not_compared():
    runs = collect_runs([RUN, {**RUN, "task": "celeba"}], [heat(1), heat(1)])
    assert compare_heatmaps(runs, 2) == ""


PICTURE = data_uri(torch.zeros(1, 8, 8))
NAMES = {"class_names": ["cat", "dog"], "group_names": ["day", "night"]}


def entry(**more):
    return {
        "index": 7,
        "target": 0,
        "towards": 1,
        "prediction": 1,
        "group": 1,
        "strength": 0.5,
        "picture": PICTURE,
    } | more


def test_a_tied_sample_says_everything_about_itself(run_of):
    made = tied(run_of({"tied": [entry()]}, **NAMES), 2)
    assert 'alt="train 7: labelled cat, tied to dog"' in made
    assert '<figure class="card" data-class="c0 c1" data-group="g1">' in made
    assert "<dt>group</dt><dd>night</dd>" in made


def test_many_samples_leave_the_rest_for_whoever_asks(run_of):
    made = tied(run_of({"tied": [entry(index=i) for i in range(30)]}, **NAMES), 2)
    assert made.count('class="card"') == 30
    assert "<summary>6 more</summary>" in made
    none = tied(run_of({"tied": [entry(strength=0.0)]}, **NAMES), 2)
    assert "every strength is zero" in none
    assert "card" not in none


def test_heat_maps_say_right_or_wrong_in_more_than_colour(run_of):
    samples = [entry(heat=PICTURE, centre_share=0.25), entry(index=8, prediction=0, heat=PICTURE)]
    made = gradcam(run_of({"gradcam": {"layer": "layer4", "samples": samples}}, **NAMES), 2)
    assert made.count("✗") == made.count("✓") == 1
    assert "<dt>in centre</dt><dd>25.0 %</dd>" in made
    assert "Layer layer4." in made


def test_a_counterfactual_stands_beside_its_real_neighbours(run_of):
    sample = entry(made=PICTURE, feature_error=0.125, neighbours=[entry(index=3, target=1)])
    made = counterfactuals(run_of({"counterfactuals": {"augmentation": "icda", "samples": [sample]}}, **NAMES), 2)
    assert made.count("<img") == 3
    assert "feature error 0.125" in made
    assert 'alt="real neighbour, sample 3, dog"' in made


def test_small_pictures_are_enlarged_without_blur_and_large_ones_smoothly():
    assert 'class="picture small"' in picture(data_uri(torch.zeros(1, 8, 8)), "a zero")
    large = data_uri(torch.rand(3, 90, 90))
    assert large.startswith("data:image/webp")
    assert 'class="picture"' in picture(large, "noise")
    assert 'alt="cut"' in picture("data:image/png;base64,AAA", "cut")  # cut short, and still an image to the page


@pytest.mark.parametrize(
    "uri", [None, "https://example.org/a.png", "data:text/html;base64,PGI+", 'data:image/png;base64,AA"onerror="x', ""]
)
def test_what_is_no_picture_is_refused(uri):
    with pytest.raises(ValueError, match=r"a picture in explanations\.json is"):
        picture(uri, "nothing")


def test_a_long_text_is_folded_between_words_and_nothing_is_lost():
    text = " ".join(f"word{k}" for k in range(200))
    drawn = str(sample({"text": text}, "a text"))
    seen, rest = re.findall(r"<summary>(.*?)</summary><span>(.*?)</span>", drawn)[0]
    assert seen + rest == text
    assert rest.startswith(" ")
    assert len(seen) <= AT_ONCE
    assert "<details>" not in str(sample({"text": text[:AT_ONCE]}, "a text"))
    unbroken = str(sample({"text": "x" * 500}, "a text"))
    assert f"<summary>{'x' * AT_ONCE}</summary>" in unbroken
    assert "<script>" not in str(sample({"text": "<script>" * 100}, "a text"))
    assert f'src="{PICTURE}"' in sample({"picture": PICTURE, "text": "no"}, "a zero")
    assert "sample 7" in sample({"index": 7}, "")


def test_ties_are_drawn_and_the_strongest_come_first(run_of):
    found = {"strengths": {"towards": [[0, 0.2, 0.1], [0.5, 0, 0], [0, 0, 0]]}}
    made = strengths(run_of(found, class_names=["cat", "dog", "cow"]), 2)
    assert "The 3 strongest ties between classes" in made
    rows = made[made.index("strongest ties") :]
    assert rows.index("0.500") < rows.index("0.200") < rows.index("0.100")
    assert "samples of dog, tied to cat\nmean strength 0.50" in made


def test_strengths_of_zero_are_said_not_drawn(run_of):
    made = strengths(run_of({"strengths": {"towards": [[0, 0], [0, 0]]}}), 2)
    assert "every mean strength is zero" in made
    assert "<table" not in made
    with pytest.raises(ValueError, match="a matrix of ties has as many columns as rows"):
        strengths(run_of({"strengths": {"towards": [[0, 1]]}}), 2)


def test_variances_draw_what_is_known(run_of):
    made = variances(run_of({"variances": {"epochs": [0, 1], "own": [2.0, 1.0], "unrelated": []}}), 2)
    assert "boundaries of the class" in made
    assert "unrelated" not in made
    assert variances(run_of({"variances": {"epochs": [], "own": []}}), 2) == ""


def test_the_share_below_zero_is_told_only_where_it_is_exact(run_of):
    exact = {"margins": {"edges": [-1.0, 0.0, 1.0], "counts": [[1, 3]], "mean": -0.25, "share_negative": 0.25}}
    made = margins(run_of(exact), 2)
    assert "<td>25.0 %</td>" in made
    assert "<dt>Mean margin</dt><dd>−0.25</dd>" in made
    unknown = margins(run_of({"split": "validation", "margins": {"edges": [-1.0, 1.0], "counts": [[4]]}}), 2)
    assert ">Below zero<" not in unknown
    assert "Margins of the validation samples" in unknown
