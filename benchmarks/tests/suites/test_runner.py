"""A grid keeps its ledger as it goes, counts its time, and refuses early what cannot work."""

import io
from dataclasses import replace
from typing import Any

import pytest
import torch
from benchmarks.tests.suites.ledgers import made_cell as cell
from rich.console import Console

from icda.methods.base import MissingNeedError
from icda.registry import UnknownNameError
from icda.training.grid import CellOutcome, run_cell, run_cells
from icda_bench.ledger import read_ledger
from icda_bench.suites import runner
from icda_bench.suites.runner import check_cells, run_suite

QUIET = Console(quiet=True)


def seeds_in(ledger):
    return [row["seed"] for row in read_ledger(ledger)]


def test_a_row_stands_in_the_ledger_as_soon_as_its_cell_is_finished(tmp_path, monkeypatch):
    chosen = [cell(tmp_path, seed=seed) for seed in range(3)]
    ledger, seen = tmp_path / "results" / "some.csv", []
    original = runner.run_cells

    def watched(*given: Any, **settings: Any) -> Any:
        for numbered in original(*given, **settings):
            yield numbered
            seen.append(seeds_in(ledger))

    monkeypatch.setattr(runner, "run_cells", watched)
    results, failures = run_suite(chosen, QUIET, ledger=ledger)
    assert seen == [["0"], ["0", "1"], ["0", "1", "2"]]
    assert sorted(results) == [0, 1, 2]
    assert not failures
    run_suite(chosen, QUIET, ledger=ledger)
    assert seeds_in(ledger) == ["0", "1", "2"]  # a second run adds no row


def test_failed_cells_are_reported_with_their_reason_and_leave_no_row(tmp_path, monkeypatch):
    chosen = [cell(tmp_path), cell(tmp_path, "icda")]
    monkeypatch.setattr(
        runner,
        "run_cells",
        lambda *_, **__: iter([(1, CellOutcome(None, "it rained")), (0, run_cell(chosen[0].config))]),
    )
    console = Console(record=True, width=200, file=io.StringIO())
    _, failures = run_suite(chosen, console, ledger=tmp_path / "some.csv")
    text = console.export_text()
    assert failures == {1: "it rained"}
    assert "failed: digits_lt, icda, seed 0: it rained" in text
    assert seeds_in(tmp_path / "some.csv") == ["0"]


@pytest.mark.parametrize(
    ("chosen", "error", "message"),
    [
        ({"method": "idca"}, UnknownNameError, "did you mean 'icda'"),
        ({"task": "digits_it"}, UnknownNameError, "did you mean 'digits_lt'"),
        ({"model": "resnet9"}, UnknownNameError, "unknown model 'resnet9'"),
        ({"method": "icda", "options": {"lambda1": 1}}, UnknownNameError, "did you mean 'lambda0'"),
        ({"task": "cifar10", "root": "nowhere"}, FileNotFoundError, "CIFAR-10 is not there"),
    ],
)
def test_what_no_cell_could_run_with_is_refused_before_any_is_run(tmp_path, chosen, error, message):
    bad = cell(tmp_path, **{"seed": 1, **chosen})
    with pytest.raises(error, match=message):
        run_suite([cell(tmp_path), bad], QUIET)
    assert not (tmp_path / "cross_entropy0").exists()


def test_a_method_without_its_metadata_is_refused_before_anything_is_run(tmp_path, monkeypatch):
    from icda.data import create_task

    monkeypatch.setattr(runner, "create_task", lambda *place: replace(create_task(*place), metadata=None))
    with pytest.raises(MissingNeedError, match="'meta_icda' needs metadata"):
        check_cells([cell(tmp_path), cell(tmp_path, "meta_icda")])


def test_an_empty_grid_is_refused():
    with pytest.raises(ValueError, match="nothing to run"):
        check_cells([])


def test_cells_run_on_ray(tmp_path):
    ray = pytest.importorskip("ray")
    config = cell(tmp_path, epochs=2).config
    bad = replace(config, method="icda", options={"lambda0": -1.0}, out=config.out + "bad")
    good = [replace(config, seed=seed, out=f"{tmp_path}/ray{{seed}}") for seed in range(2)]
    outcomes = dict(run_cells([*good, bad], 1, where="ray"))
    assert not ray.is_initialized()
    assert "InputError" in outcomes[2].failure
    torch.set_num_threads(1)
    for number, one in enumerate(good):
        here = run_cell(replace(one, out=f"{tmp_path}/here{{seed}}")).result
        there = outcomes[number].result
        assert there["metrics"] == here["metrics"]
    assert all(run_cell(one).seconds == 0 for one in good)
