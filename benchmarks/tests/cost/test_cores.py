"""What cores bring: that each row is measured in a child with the threads it names. No figure is asserted."""

import os

import pytest

from icda_bench.cost import cores
from icda_bench.cost.cores import PLANS, measure_cores, run_task


def test_no_plan_asks_for_more_threads_than_two_cores():
    assert all(processes * threads <= 2 for plans in PLANS.values() for processes, threads in plans)


def test_a_row_is_the_median_and_its_gain_is_over_one_thread(monkeypatch):
    rates = iter([4.0, 8.0, 5.0, 9.0, 3.0, 7.0])
    monkeypatch.setattr(
        cores,
        "_measured",
        lambda task, p, t: {"task": task, "processes": p, "threads_each": t, "per_second": next(rates)},
    )
    rows = measure_cores(["fit"], rounds=3)
    assert [(row["threads_each"], row["per_second"], row["speedup"]) for row in rows] == [(1, 4.0, 1.0), (2, 8.0, 2.0)]


@pytest.mark.parametrize("task", ["audit", "fit"])
def test_a_task_runs(task, monkeypatch):
    monkeypatch.setattr(cores, "SAMPLES", 200)
    monkeypatch.setattr(cores, "FEATURES", 6)
    monkeypatch.setattr(cores, "CLASSES", 2)
    row = run_task(task, 1, 1)
    assert (row["task"], row["processes"], row["threads_each"]) == (task, 1, 1)
    assert row["seconds"] > 0
    assert row["processor_seconds"] > 0


def test_a_row_is_measured_in_a_child_with_its_threads(monkeypatch):
    monkeypatch.setattr(cores, "run_task", threads_of)
    assert cores._measured("fit", 1, 2) == "2 PASSIVE"


def threads_of(*_):
    return f"{os.environ['OMP_NUM_THREADS']} {os.environ['OMP_WAIT_POLICY']}"
