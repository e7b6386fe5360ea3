import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from icda.methods import StepResult
from icda.training.plan import Position, Tally


def result(loss: float, predictions: list[int] | None, **extra: float) -> StepResult:
    logits = None if predictions is None else torch.eye(3)[predictions]
    return StepResult(torch.tensor(loss), logits, extra)


def test_figures_are_means_over_samples_not_over_batches() -> None:
    tally = Tally()
    tally.add(result(1.0, [0, 1, 2]), torch.tensor([0, 1, 1]))
    tally.add(result(3.0, [2]), torch.tensor([2]))
    assert tally.loss() == pytest.approx((1.0 * 3 + 3.0) / 4)
    assert tally.accuracy() == pytest.approx(3 / 4)


def test_an_extra_figure_is_a_mean_over_the_steps_that_reported_it() -> None:
    tally = Tally()
    tally.add(result(1.0, [0, 1, 2], weight=2.0), torch.tensor([0, 1, 2]))
    tally.add(result(1.0, [0]), torch.tensor([0]))
    tally.add(result(1.0, [0], weight=6.0), torch.tensor([0]))
    assert tally.extras() == {"weight": pytest.approx((3 * 2.0 + 6.0) / 4)}


def test_a_method_without_one_answer_has_no_accuracy() -> None:
    tally = Tally()
    tally.add(result(1.0, None), torch.tensor([0, 1]))
    assert tally.accuracy() is None
    assert tally.loss() == 1.0


def test_an_empty_tally_is_zero_and_does_not_divide_by_it() -> None:
    assert (Tally().loss(), Tally().accuracy(), Tally().extras()) == (0.0, None, {})


def test_ranks_add_up_to_one_tally() -> None:
    accelerator: Any = SimpleNamespace(
        num_processes=2, device=torch.device("cpu"), reduce=lambda values, reduction: values * 2
    )
    tally = Tally()
    tally.add(result(2.0, [0, 1], weight=1.0), torch.tensor([0, 0]))
    both = tally.reduced(accelerator)
    assert both.sums == {name: 2 * value for name, value in tally.sums.items()}
    assert (both.loss(), both.accuracy(), both.extras()) == (2.0, 0.5, {"weight": 1.0})
    assert Tally().reduced(accelerator).sums == {}


def test_a_zeroed_tally_counts_the_same_things_from_nothing() -> None:
    tally = Tally({"loss": 3.0, "samples": 4})
    assert tally.zeroed().sums == {"loss": 0, "samples": 0}
    assert tally.sums == {"loss": 3.0, "samples": 4}


def test_a_position_survives_the_way_through_a_checkpoint() -> None:
    position = Position(stage=1, epoch=4, batch=2, iteration=22)
    position.tally.add(result(0.5, [1]), torch.tensor([1]))
    assert Position.from_state(json.loads(json.dumps(position.state_dict()))).state_dict() == position.state_dict()


def test_the_next_epoch_starts_at_its_first_batch_with_an_empty_tally() -> None:
    position = Position(stage=1, epoch=4, batch=2, iteration=22, tally=Tally({"loss": 1.0}))
    position.next_epoch()
    assert position.state_dict() == {"stage": 1, "epoch": 5, "batch": 0, "iteration": 22, "tally": {}}
