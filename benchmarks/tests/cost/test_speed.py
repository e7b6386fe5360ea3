import gc
import math
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

import icda.functional.fused as fused_forms
from icda.losses import ISDALoss
from icda_bench.cost import measures, speed
from icda_bench.cost.measures import interleave
from icda_bench.cost.peers import PeersISDA
from icda_bench.cost.speed import FUSED, head_rows, head_steps, measure_speed, network_rows


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only when a step says so."""
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(measures, "time", clock)
    return clock


def test_steps_take_turns_in_every_round(clock):
    calls: list[str] = []
    steps = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    interleave(steps, rounds=2, warm_up=1)
    assert "".join(calls) == "abc" + "abc" + "bca", "and nobody always goes first"


def test_each_time_is_that_of_its_own_step_without_warm_up(clock):
    costs: dict[str, Iterator[float]] = {"a": iter([9.0, 1.0, 2.0, 3.0]), "b": iter([9.0, 10.0, 20.0, 30.0])}

    def step(name: str) -> None:
        clock.now += next(costs[name])

    times = interleave({"a": lambda: step("a"), "b": lambda: step("b")}, rounds=3, warm_up=1)
    assert times == {"a": [1.0, 2.0, 3.0], "b": [10.0, 20.0, 30.0]}


def test_the_garbage_collector_rests_while_steps_are_timed_and_wakes_even_after_a_failure(clock):
    resting: list[bool] = []
    interleave({"a": lambda: resting.append(not gc.isenabled())}, rounds=1, warm_up=1)
    assert resting == [False, True]
    with pytest.raises(ZeroDivisionError):
        interleave({"a": lambda: 1 / 0 and None}, rounds=1, warm_up=0)
    assert gc.isenabled()


def test_the_ratio_is_the_median_of_paired_ratios():
    """A machine that is ten times slower in one round strikes both alike and leaves the ratio as it is."""
    times = [0.010, 0.100, 0.020], [0.011, 0.110, 0.024]
    row = speed._row(("head", "icda", "diagonal", 10, 64, 128), *times, lambda: None, 1.3)
    assert row["base_ms"] == 20.0
    assert row["method_ms"] == 24.0
    assert row["ratio"] == pytest.approx(1.1)
    assert row["extra_mib"] == 1.3
    assert row["quartiles"] == "1.100 to 1.150"


def test_a_head_is_measured_with_its_memory():
    rows = head_rows(classes=50, features=32, batch=16, covariance="diagonal", rounds=1)
    for row, what in zip(rows, ("head", "head, no logits"), strict=True):
        assert (row["what"], row["method"], row["covariance"]) == (what, "icda", "diagonal")
        assert (row["classes"], row["features"], row["batch"]) == (50, 32, 16)
        assert min(row["base_ms"], row["method_ms"], row["ratio"]) > 0


def test_the_step_that_training_runs_is_given_logits_and_the_fused_one_is_not(monkeypatch):
    fused: list[bool] = []
    plain = fused_forms.adjusted_logits
    monkeypatch.setattr(fused_forms, "adjusted_logits", lambda *given: fused.append(True) or plain(*given))
    steps = head_steps(classes=5, features=4, batch=6, covariance="diagonal")
    steps["icda"]()
    assert not fused
    steps[FUSED]()
    assert fused == [True]
    assert list(head_steps(classes=5, features=4, batch=6, covariance="full")) == ["ce", "icda"]


def test_whole_steps_are_measured_with_the_covariance_they_use():
    rows = network_rows("mlp", classes=10, batch_size=4, rounds=1)
    assert [(row["what"], row["method"], row["covariance"], row["features"]) for row in rows] == [
        ("mlp step", "icda", "full", 128)
    ]
    with pytest.warns(UserWarning, match="using diagonal ones"):
        rows = network_rows("linear", classes=10, batch_size=4, rounds=1)
    assert {row["covariance"] for row in rows} == {"diagonal"}


def test_the_grid_is_measured_when_asked_for(monkeypatch):
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(speed, "HEAD_GRID", ((7, 8), (9, 16)))
    for name in ("network_rows", "head_rows"):
        monkeypatch.setattr(speed, name, lambda *given: asked.append(given) or [])
    measure_speed("mlp", 4, 2, False)
    whole = [("mlp", 10, 4, 2), (10, 64, 4, "full", 2), ("mlp", 100, 4, 2), (100, 64, 4, "full", 2)]
    assert asked == [*whole, (1000, 2048, 64, "diagonal", 2)]
    measure_speed("mlp", 4, 2, True)
    assert asked[10:] == [(7, 8, 128, "diagonal", 2), (9, 16, 128, "diagonal", 2)]


def test_the_limit_is_the_time_of_the_matrix_products_alone():
    """A head of C = 50, A = 32, N = 16 has three products; ICDA's own add to them."""
    rows = head_rows(classes=50, features=32, batch=16, covariance="diagonal", rounds=1)
    product = 2 * 50 * 32 * 16 / 1e9
    gflop = {row["what"]: row["gflop"] for row in rows}
    assert gflop["head"] == pytest.approx(11 * product, rel=0.05)
    assert gflop["head, no logits"] == pytest.approx(9 * product, rel=0.05)
    (row, *_) = speed.with_limits(rows, rate=1e9)
    assert row["limit_ms"] == pytest.approx(1e3 * gflop["head"], rel=1e-3)


def test_the_peers_form_stands_beside_full_covariances_where_it_fits(monkeypatch):
    rows = head_rows(classes=6, features=5, batch=8, covariance="full", rounds=1)
    assert [(row["what"], row["method"]) for row in rows] == [("head", "icda"), ("head, N x C x A", "isda")]
    monkeypatch.setattr(speed, "PEERS_BYTES", 100)
    assert len(head_rows(classes=6, features=5, batch=8, covariance="full", rounds=1)) == 1


def test_the_peers_form_has_the_value_and_gradients_of_our_isda():
    """Over two batches, the second merged with the statistics of the first."""
    torch.manual_seed(0)
    losses = (PeersISDA(4, 5).double(), ISDALoss(4, 5, covariance="full", variance_bound=math.inf).double())
    head = torch.nn.Linear(5, 4).double()
    for seed in range(2):
        features = torch.randn(9, 5, dtype=torch.float64)
        targets = torch.randint(3, (9,), generator=torch.Generator().manual_seed(seed))  # class 3 stays empty
        values = [loss(features, targets, head, 0.5, head(features)) for loss in losses]
        slopes = [torch.autograd.grad(value, head.weight)[0] for value in values]
        torch.testing.assert_close(values[0], values[1], rtol=1e-10, atol=0)
        torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-9, atol=1e-13)
