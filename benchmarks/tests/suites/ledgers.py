"""Cells and ledger rows as tests need them."""

from typing import Any

from icda.results.ledger import COLUMNS
from icda.training import TrainConfig
from icda_bench.ledger import cell_columns
from icda_bench.suites.suite import Cell, cell_config


def made_cell(tmp_path, method="cross_entropy", seed=0, **settings):
    """A cell of one epoch with a linear model."""
    values: dict[str, Any] = {"task": "digits_lt", "model": "linear", "epochs": 1, **settings}
    out = str(tmp_path / f"{method}{seed}")
    return Cell("some", "smoke", "a", method, TrainConfig(method=method, seed=seed, out=out, **values))


def ledger_row(**told):
    """A row of a ledger of which only this is known."""
    return {**dict.fromkeys(COLUMNS, ""), **{name: str(value) for name, value in told.items()}}


def rows_for(suite, key, tier, accuracies, column=0):
    """Ledger rows of one cell of a suite, a seed for each accuracy."""
    place = suite.columns[column]
    config = cell_config(suite, tier, place, suite.row(key))
    told, metric = {**cell_columns(config), "tier": tier}, suite.metric_of(place)
    return [ledger_row(**told, seed=seed, **{metric: value}) for seed, value in enumerate(accuracies)]
