import io

import numpy as np
import pytest
import rich.console

from icda.report import comparison_table, summarise, to_markdown, to_rich
from icda.report.formatting import heading
from icda.report.tables import COMPARED, label_methods


def run(method, seed, accuracy, **more):
    return {"task": "waterbirds", "method": method, "seed": seed, "metrics": {"accuracy": accuracy}, **more}


def test_mean_and_deviation_are_numpys_with_one_degree_of_freedom_less():
    values = np.random.default_rng(0).random(5)
    (row,) = summarise([run("icda", seed, float(value)) for seed, value in enumerate(values)], "accuracy")
    assert row.mean == pytest.approx(values.mean())
    assert row.std == pytest.approx(values.std(ddof=1))
    assert row.n == 5
    assert str(row) == f"{100 * values.mean():.2f} ± {100 * values.std(ddof=1):.2f}"
    (row,) = summarise([run("icda", 0, 0.7)], "accuracy")
    assert (row.std, row.n, str(row)) == (None, 1, "70.00")


def test_rows_come_for_each_task_and_method_in_the_order_they_were_given():
    runs = [run("ce", 0, 0.5), run("icda", 0, 0.6), run("ce", 1, 0.7), run("ce", 0, 0.9, task="celeba")]
    rows = summarise(runs, "accuracy")
    assert [(row.task, row.method, row.n) for row in rows] == [
        ("waterbirds", "ce", 2),
        ("waterbirds", "icda", 1),
        ("celeba", "ce", 1),
    ]


def test_runs_selected_by_different_rules_are_not_averaged():
    runs = [run("ce", 0, 0.5, selection="last"), run("ce", 1, 0.7, selection="validation_accuracy")]
    assert [row.n for row in summarise(runs, "accuracy")] == [1, 1]
    table = comparison_table(runs)
    assert table.header[:3] == ("Task", "Method", "Selection")
    assert [row[2] for row in table.rows] == ["last", "validation_accuracy"]


CONFIG = {"epochs": 40, "options": {}, "attributes": "known"}


def configured(seed, accuracy, model="resnet8", **config):
    return run("icda", seed, accuracy, model=model, selection="last", config=CONFIG | {"seed": seed} | config)


@pytest.mark.parametrize(
    ("change", "labels"),
    [
        ({"epochs": 120}, ["icda (40 epochs)", "icda (120 epochs)"]),
        ({"epochs": 1}, ["icda (40 epochs)", "icda (1 epoch)"]),
        ({"options": {"lambda0": 0.25, "beta": 0}}, ["icda", "icda (beta=0 lambda0=0.25)"]),
        ({"model": "resnet20"}, ["icda (resnet8)", "icda (resnet20)"]),
        ({"attributes": "unknown"}, ["icda (attributes known)", "icda (attributes unknown)"]),
        (
            {"epochs": 120, "options": {"beta": 0}, "model": "resnet20"},
            ["icda (resnet8, 40 epochs)", "icda (beta=0, resnet20, 120 epochs)"],
        ),
    ],
)
def test_runs_that_differ_in_more_than_their_seed_are_not_averaged(change, labels):
    runs = [configured(0, 0.5), configured(0, 0.8, **change), configured(1, 0.6), configured(1, 0.9, **change)]
    rows = summarise(runs, "accuracy")
    assert [(row.method, row.n) for row in rows] == [(label, 2) for label in labels]
    assert [row.mean for row in rows] == pytest.approx([0.55, 0.85])
    table = comparison_table(runs)
    assert [row[1:4] for row in table.rows] == [(labels[0], "2", str(rows[0])), (labels[1], "2", str(rows[1]))]


def test_only_what_differs_within_a_task_and_method_is_named():
    seeds = [configured(seed, 0.5, options={"beta": 0}) for seed in (0, 1)]
    assert [row[:3] for row in comparison_table(seeds).rows] == [("waterbirds", "icda", "2")]
    other_method = run("ce", 0, 0.4, model="linear", config=CONFIG | {"epochs": 7})
    other_task = configured(0, 0.4, epochs=9) | {"task": "celeba"}
    rows = summarise([*seeds, other_method, other_task], "accuracy")
    assert [(row.task, row.method) for row in rows] == [
        ("waterbirds", "icda"),
        ("waterbirds", "ce"),
        ("celeba", "icda"),
    ]


def test_a_run_from_before_there_were_attributes_is_a_seed_like_the_others():
    old = run("icda", 1, 0.6, model="resnet8", selection="last", config={"epochs": 40, "options": {}})
    assert [(row.method, row.n) for row in summarise([configured(0, 0.5), old], "accuracy")] == [("icda", 2)]


def test_a_name_that_ends_in_its_options_is_the_same_method_and_says_them_once():
    ledger = run("icda (beta=0)", 0, 0.5, config={"epochs": "40", "options": "beta=0"})
    plain = run("icda", 0, 0.5, config={"epochs": "120"})
    assert label_methods([ledger, plain]) == ["icda (beta=0, 40 epochs)", "icda (120 epochs)"]
    assert label_methods([ledger, ledger]) == ["icda (beta=0)", "icda (beta=0)"]
    named = [one | {"method": name} for one, name in zip([ledger, plain], label_methods([ledger, plain]), strict=True)]
    assert label_methods(named) == [one["method"] for one in named]


def test_a_figure_nobody_measured_is_blank_and_a_partly_measured_one_says_its_n():
    runs = [run("ce", 0, None), run("icda", 0, 0.5), run("icda", 1, None)]
    assert comparison_table(runs).rows == (("waterbirds", "ce", "1", ""), ("waterbirds", "icda", "2", "50.00 (n = 1)"))
    repeated = comparison_table([run("ce", 0, 0.5), run("ce", 0, 0.6), run("ce", 1, 0.7)])
    assert repeated.header == ("Task", "Method", "n", "Accuracy (%)")  # of what was measured alone
    assert repeated.rows[0][2] == "3 (2 seeds)"


def test_markdown_keeps_its_shape_whatever_the_names():
    text = to_markdown(comparison_table([run("a|b\nc <i>", 0, 0.5)], caption="Our | runs"))
    assert text.splitlines() == [
        "Our \\| runs",
        "",
        "| Task | Method | n | Accuracy (%) |",
        "|:--|:--|--:|--:|",
        "| waterbirds | a\\|b c &lt;i> | 1 | 50.00 |",
    ]


def shown_at(width, results):
    console = rich.console.Console(file=io.StringIO(), width=width)
    console.print(to_rich(comparison_table(results, caption="All [runs]")))
    return console.file.getvalue()


def test_the_terminal_shows_names_as_they_are_and_a_table_that_fits_once():
    text = shown_at(200, [run("[red]icda[/red]", 0, 0.5)])
    assert all(word in text for word in ("[red]icda[/red]", "All [runs]", "50.00", "Accuracy (%)"))
    assert text.count("Task") == 1


@pytest.mark.parametrize("width", [70, 80, 100, 200])
def test_the_terminal_cuts_no_word_and_no_figure_however_narrow_it_is(width):
    metrics = dict.fromkeys(COMPARED, 0.51234)
    results = [
        {"task": "digits_coloured", "method": method, "seed": seed, "metrics": metrics}
        for method in ("adaptive_logit_adjustment", "icda (lambda0=0.25 beta=0)")
        for seed in (0, 1)
    ]
    text = shown_at(width, results)
    assert max(map(len, text.splitlines())) <= width
    words = {word for name in COMPARED for word in heading(name).split()}
    words |= {"digits_coloured", "adaptive_logit_adjustment", "(lambda0=0.25", "beta=0)"}
    assert words <= set(text.split())
    assert text.count("51.23 ± 0.00") == 2 * len(COMPARED)
