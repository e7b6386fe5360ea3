"""Suites are data: their parts fit each other, and the paper's figures in them are the paper's."""

import copy
import math
import re
from pathlib import Path
from typing import Any

import pytest

from icda.data import TASKS
from icda.losses import LargeMarginSoftmaxLoss
from icda.methods import method_names, method_needs, resolve_method
from icda.methods.create import method_class, option_names
from icda.models import MODELS
from icda.registry import UnknownNameError
from icda_bench.suites.suite import SUITES, TIERS, Suite, cell_config, cells, load_suite, parse_suite

PAPER = Path(__file__).resolve().parents[4] / "shared" / "paper.tex"

SMALL: dict[str, Any] = {
    "title": "a table",
    "reference": "cross_entropy",
    "columns": {
        "a": {"title": "A", "smoke": {"task": "digits"}, "cpu": {"task": "digits_lt", "metadata_task": "digits"}},
        "b": {"title": "B", "cpu": {"task": "digits_lt", "settings": {"epochs": 9}}},
    },
    "tiers": {
        "smoke": {"recipe": {"epochs": 1}},
        "cpu": {"recipe": {"epochs": 2}, "metadata_recipe": {"decay": 0.01}, "seeds": 1, "row_seeds": {"icda": 2}},
    },
    "rows": [
        {"method": "cross_entropy", "title": "CE", "paper": [1.0, None]},
        {
            "method": "icda",
            "title": "ICDA",
            "options": {"beta": 0.2},
            "column_options": {"b": {"lambda0": 1.0}},
            "settings": {"clip_norm": 5.0},
            "column_settings": {"b": {"clip_norm": 1.0}},
        },
        {"method": "meta_icda", "title": "Meta-ICDA", "metadata": True, "skip": ["b"]},
        {"key": "gan", "title": "a GAN", "paper": [2.0, 3.0]},
    ],
}


NO_DATA_HERE = ("imagenet-lt",)  # what they want cannot be had on our machine
LONG = ("table2", "table9", "gain")
FOREIGN = ("torchvision:resnet50@IMAGENET1K_V1", "torchvision:resnext50_32x4d", "hf:distilbert-base-uncased")


def small(**changes):
    return parse_suite("small", {**copy.deepcopy(SMALL), **changes})


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("tier", TIERS)
def test_every_cell_of_every_suite_is_a_configuration(name, tier):
    if (tier == "cpu" and name in NO_DATA_HERE) or (tier == "long" and name not in LONG):
        with pytest.raises(ValueError, match=f"suite '{name}' has no tier '{tier}': choose from smoke, "):
            cells(load_suite(name), tier, "runs")
        return
    found = cells(load_suite(name), tier, "runs")
    assert found
    assert len({cell.config.folder() for cell in found}) == len(found)


@pytest.mark.parametrize("name", SUITES)
def test_every_name_in_a_suite_is_known(name):
    suite, known = load_suite(name), set(method_names())
    for row in suite.rows:
        if row.method is None:
            continue
        assert row.method in known, f"{name}: {row.method}"  # the registered name, for the ledger has no aliases
        assert resolve_method(row.method) == row.method
        assert row.metadata or "metadata" not in method_needs(row.method), row.method
        options = option_names(method_class(row.method))
        for column in suite.columns:
            assert set(row.options_in(column.key)) <= set(options), row.method
    for column in suite.columns:
        for tier, place in column.places.items():
            ends = [f"_fold_{fold}" for fold in place.fold_numbers()] if place.folds else [""]
            assert {f"{name}{end}" for name in (place.task, place.metadata_task or place.task) for end in ends} <= set(
                TASKS
            )
            model = cell_config(suite, tier, column, suite.row(suite.reference)).model
            assert model is not None
            assert model in MODELS or model in FOREIGN  # always said: the ledger's row and the suite's are compared


@pytest.mark.parametrize("name", ["table2", "table4", "table6", "table7", "table8", "table9"])
def test_the_papers_figures_stand_in_the_paper(name):
    if not PAPER.is_file():
        pytest.skip(f"{PAPER} is not there: the figures were not compared with the paper.")
    text = PAPER.read_text()
    table = text[: text.index(f"\\label{{{name}}}")].rpartition("\\begin{table")[2]
    lines = [re.findall(r"(\d+\.\d\d?)\D*?\\%|(?<=\s)(-)(?=\s)", line) for line in table.splitlines()]
    printed = [[None if gap else float(figure) for figure, gap in line] for line in lines if len(line) > 3]
    ours = {row.paper for row in load_suite(name).rows if row.paper}
    assert ours == {tuple(line) for line in printed}


def test_the_papers_recipe_is_that_of_the_paper():
    table2, table4, table9 = (load_suite(name) for name in ("table2", "table4", "table9"))

    def of(suite: Suite, column: str, row: str) -> tuple[Any, ...]:
        (place,) = (c for c in suite.columns if c.key == column)
        config = cell_config(suite, "paper", place, suite.row(row))
        schedule = (config.learning_rate, config.milestones, config.decay, config.epochs, config.batch_size)
        return (config.task, config.model, config.weight_decay, *schedule, config.momentum, config.optimizer)

    plain, meta = (0.1, (120, 160), 0.1, 200, 128, 0.9, "sgd"), (0.1, (160, 180), 0.01, 200, 128, 0.9, "sgd")
    assert of(table2, "c10_100", "icda") == ("cifar10_lt_100", "resnet32", 5e-4, *plain)
    assert of(table2, "c10_10", "meta_icda") == ("cifar10_lt_10_meta", "resnet32", 5e-4, *meta)
    assert of(table4, "flip_40", "icda") == ("cifar10_flip_40", "resnet32", 1e-4, *plain)
    assert of(table4, "uniform_60", "meta_icda") == ("cifar10_uniform_60", "wrn_28_10", 5e-4, *meta)
    assert of(table9, "resnet_c10", "icda") == ("cifar10", "resnet110", 1e-4, *plain)
    assert of(table9, "wrn_c100", "icda") == ("cifar100", "wrn_28_10", 5e-4, *plain)


def test_seed_0_of_everything_comes_first():
    found = [(cell.column, cell.row, cell.config.seed) for cell in cells(small(), "cpu", "runs", tasks=["a"])]
    assert found == [("a", "cross_entropy", 0), ("a", "icda", 0), ("a", "meta_icda", 0), ("a", "icda", 1)]


def test_recipes_places_and_rows_add_up():
    found = {(c.column, c.row): c.config for c in cells(small(), "cpu", "runs", tasks=["a", "b"], seeds=1)}
    assert found["a", "icda"].options == {"beta": 0.2}
    assert found["b", "icda"].options == {"beta": 0.2, "lambda0": 1.0}
    assert (found["a", "icda"].epochs, found["b", "icda"].epochs) == (2, 9)
    assert (found["a", "icda"].clip_norm, found["b", "icda"].clip_norm) == (5.0, 1.0)
    assert (found["a", "meta_icda"].task, found["a", "meta_icda"].decay) == ("digits", 0.01)
    assert (found["a", "icda"].task, found["a", "icda"].decay) == ("digits_lt", 0.1)
    assert ("b", "meta_icda") not in found


def test_a_place_may_have_its_own_rows_seeds_and_options():
    columns = copy.deepcopy(SMALL["columns"])
    own = {"rows": ["icda", "meta_icda"], "row_seeds": {"icda": 1}, "row_options": {"icda": {"beta": 0.3}}}
    columns["a"]["cpu"] |= own
    found = cells(small(columns=columns), "cpu", "runs", tasks=["a"])
    assert [(cell.row, cell.config.options) for cell in found] == [("icda", {"beta": 0.3}), ("meta_icda", {})]


def test_rows_columns_and_seeds_can_be_chosen():
    suite = small()
    assert [cell.row for cell in cells(suite, "cpu", "runs", methods=["icda"], tasks=["a"], seeds=3)] == ["icda"] * 3
    assert {cell.column for cell in cells(suite, "cpu", "runs", tasks=["digits_lt"])} == {"a", "b"}
    with pytest.raises(UnknownNameError, match="cited from the paper"):
        cells(suite, "cpu", "runs", methods=["gan"])


def test_a_cell_that_two_suites_share_has_one_folder_and_a_changed_recipe_another():
    table2, ablation = (
        {cell.config.folder() for cell in cells(load_suite(name), "cpu", "runs", methods=["icda"], seeds=1)}
        for name in ("table2", "ablation")
    )
    assert table2 & ablation
    changed = copy.deepcopy(SMALL["tiers"])
    changed["cpu"]["recipe"]["epochs"] = 3
    before, after = (cells(suite, "cpu", "runs")[0] for suite in (small(), small(tiers=changed)))
    assert before.config.folder() != after.config.folder()


def test_error_rates_become_accuracies():
    suite = small(shows="error")
    assert [suite.paper_points(suite.row("gan"), column) for column in suite.columns] == [98.0, 97.0]
    assert suite.paper_points(suite.row("cross_entropy"), suite.columns[1]) is None


@pytest.mark.parametrize("name", SUITES)
def test_the_parts_of_a_suite_fit_each_other(name):
    suite = load_suite(name)
    keys, columns = [row.key for row in suite.rows], [column.key for column in suite.columns]
    assert len(set(keys)) == len(keys)
    assert suite.reference in keys
    for row in suite.rows:
        assert len(row.paper) in (0, len(suite.paper_columns())), f"{row.key}: as many figures as the paper has columns"
        assert {*row.skip, *row.column_options, *row.column_settings} <= set(columns)
        assert row.below is None or row.below in keys
    for column in suite.columns:
        here = bool({"cpu", "long"} & set(column.places))
        assert (column.absent is None) == here, f"{column.key} is run here or says why not"
        for place in column.places.values():
            assert {*place.rows, *place.row_seeds, *place.row_options} <= set(keys)


def test_seeds_may_begin_later():
    chosen = cells(load_suite("noise"), "cpu", "out", methods=("elr",), tasks=("digits_flip",), seeds=2, first_seed=10)
    assert [cell.config.seed for cell in chosen] == [10, 11]


@pytest.mark.parametrize(
    ("column", "tier", "images"),
    [("resnet_c10", "cpu", 2500), ("resnet_c10", "long", 5000), ("resnet_c100", "cpu", 10_000)],
)
def test_the_large_margin_is_not_there_before_the_network_fits(column, tier, images):
    """Its lambda passes 1 with the last steps: earlier, weights of hard classes shrink to zero."""
    suite = load_suite("table9")
    config = cell_config(suite, tier, suite.column(column), suite.row("large_margin_softmax"))
    loss = LargeMarginSoftmaxLoss(10, 64, **config.options)
    loss.steps.fill_(config.epochs * math.ceil(images / config.batch_size))
    assert 0.5 < loss.blend < 1.5
