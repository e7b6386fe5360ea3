import pytest

from icda.methods.acgan import ACGAN
from icda.models import create_model
from icda_bench.cost import method_cost
from icda_bench.cost.method_cost import measure_method_cost


def test_a_method_is_measured_beside_cross_entropy_with_what_it_trains_along() -> None:
    options = {"acgan": {"width": 8}}
    rows = measure_method_cost(
        ["ce", "isda", "acgan"], "small_cnn", batch_size=4, rounds=2, input_shape=(1, 8, 8), options=options
    )
    assert [row.method for row in rows] == ["cross_entropy", "isda", "acgan"]
    network = create_model("small_cnn", 10, (1, 8, 8))
    assert {row.network_parameters for row in rows} == {sum(p.numel() for p in network.parameters())}
    assert rows[0].extra_parameters == rows[1].extra_parameters == 0
    assert rows[2].extra_parameters > 1000
    assert rows[0].gflop < rows[2].gflop
    assert (rows[0].ratio, rows[0].low, rows[0].high) == (1, 1, 1)
    assert all(row.ms > 0 and row.low <= row.ratio <= row.high for row in rows)


def test_a_step_at_nine_tenths_of_training_has_all_parts_active(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    additional = ACGAN.additional_images

    def watched(self: ACGAN, batch: object, iteration: int) -> object:
        found = additional(self, batch, iteration)  # type: ignore[arg-type]
        seen.append(len(found[0]))
        return found

    monkeypatch.setattr(ACGAN, "additional_images", watched)
    shape = (1, 8, 8)
    measure_method_cost(["acgan"], "mlp", batch_size=10, rounds=2, input_shape=shape, options={"acgan": {"width": 8}})
    assert seen == [2] * 4, "a warm-up, two timed, one counted"


def test_the_ratio_is_the_median_of_paired_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"cross_entropy": [0.01, 0.1, 0.02], "isda": [0.02, 0.3, 0.08]}
    monkeypatch.setattr(method_cost, "interleave", lambda *_, **__: times)
    _, row = measure_method_cost(["isda"], "mlp", batch_size=4, input_shape=(5,))
    assert (row.ms, row.ratio, row.low, row.high) == (80.0, 3.0, 2.5, 3.5)


def test_one_round_has_no_quartiles() -> None:
    with pytest.raises(ValueError, match="rounds must be 2 or more, got 1"):
        measure_method_cost(["isda"], "mlp", rounds=1)
