"""Learning rates, where a training stands, and the seeds of its draws."""

import json
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from icda.methods import StepResult
from icda.training import TrainConfig
from icda.training.plan import Position, Tally, learning_rate, random_state, restore_random_state, seed_everything

TIMES = [k / 8 for k in range(8 * 20)]  # 20 epochs of eight iterations


def rates(**settings):
    config = TrainConfig(learning_rate=0.4, epochs=20, **settings)
    return [learning_rate(config, time, 20) for time in TIMES]


def test_constant_never_moves():
    assert rates(schedule="constant") == [0.4] * len(TIMES)


@pytest.mark.parametrize(("milestones", "falls"), [((0.6, 0.8), (12, 16)), ((3, 0.5), (3, 10)), ((), ())])
def test_step_multiplies_at_each_milestone_reached(milestones, falls):
    expected = [0.4 * 0.2 ** sum(time >= fall for fall in falls) for time in TIMES]
    assert rates(schedule="step", milestones=milestones, decay=0.2) == pytest.approx(expected)


def test_a_share_of_the_epochs_falls_on_a_whole_epoch():
    config = TrainConfig(learning_rate=1.0, milestones=(0.5,), decay=0.1)
    assert [learning_rate(config, epoch, 7) for epoch in (3.9, 4.0)] == pytest.approx([1.0, 0.1])


def test_a_stage_moves_milestones_given_as_epochs_in_proportion_to_its_length():
    config = TrainConfig(learning_rate=1.0, milestones=(120, 0.8), decay=0.1)
    found = [learning_rate(config, epoch, 50, whole=200) for epoch in (29.9, 30.0, 39.9, 40.0)]
    assert found == pytest.approx([1.0, 0.1, 0.1, 0.01])
    assert learning_rate(config, 49.9, 200, whole=200) == 1.0


def test_cosine_follows_half_a_wave_from_the_rate_to_zero():
    expected = [0.2 * (1 + math.cos(math.pi * time / 20)) for time in TIMES]
    assert rates(schedule="cosine") == pytest.approx(expected)
    config = TrainConfig(learning_rate=0.4, schedule="cosine")
    assert [learning_rate(config, epoch, 20) for epoch in (0, 10, 20, 25)] == pytest.approx([0.4, 0.2, 0, 0])


@pytest.mark.parametrize("schedule", ["step", "cosine", "constant"])
def test_warm_up_rises_in_a_line_and_then_leaves_the_schedule_alone(schedule):
    plain, warmed = rates(schedule=schedule), rates(schedule=schedule, warmup_epochs=2.5)
    expected = [rate * min(time / 2.5, 1) for rate, time in zip(plain, TIMES, strict=True)]
    assert warmed == pytest.approx(expected)
    assert warmed[0] == 0


def result(loss, predictions, **extra):
    logits = None if predictions is None else torch.eye(3)[predictions]
    return StepResult(torch.tensor(loss), logits, extra)


def test_figures_are_means_over_samples_not_over_batches():
    tally = Tally()
    tally.add(result(1.0, [0, 1, 2]), torch.tensor([0, 1, 1]))
    tally.add(result(3.0, [2]), torch.tensor([2]))
    assert tally.loss() == pytest.approx((1.0 * 3 + 3.0) / 4)
    assert tally.accuracy() == pytest.approx(3 / 4)


def test_an_extra_figure_is_a_mean_over_the_steps_that_reported_it():
    tally = Tally()
    tally.add(result(1.0, [0, 1, 2], weight=2.0), torch.tensor([0, 1, 2]))
    tally.add(result(1.0, [0]), torch.tensor([0]))
    tally.add(result(1.0, [0], weight=6.0), torch.tensor([0]))
    assert tally.extras() == {"weight": pytest.approx((3 * 2.0 + 6.0) / 4)}


def test_a_method_without_one_answer_has_no_accuracy():
    tally = Tally()
    tally.add(result(1.0, None), torch.tensor([0, 1]))
    assert tally.accuracy() is None
    assert tally.loss() == 1.0


def test_an_empty_tally_is_zero_and_does_not_divide_by_it():
    assert (Tally().loss(), Tally().accuracy(), Tally().extras()) == (0.0, None, {})


def test_ranks_add_up_to_one_tally():
    accelerator = SimpleNamespace(
        num_processes=2, device=torch.device("cpu"), reduce=lambda values, reduction: values * 2
    )
    tally = Tally()
    tally.add(result(2.0, [0, 1], weight=1.0), torch.tensor([0, 0]))
    both = tally.reduced(accelerator)
    assert both.sums == {name: 2 * value for name, value in tally.sums.items()}
    assert (both.loss(), both.accuracy(), both.extras()) == (2.0, 0.5, {"weight": 1.0})
    assert Tally().reduced(accelerator).sums == {}


def test_a_position_survives_the_way_through_a_checkpoint():
    position = Position(stage=1, epoch=4, batch=2, iteration=22)
    position.tally.add(result(0.5, [1]), torch.tensor([1]))
    assert Position.from_state(json.loads(json.dumps(position.state_dict()))).state_dict() == position.state_dict()


def test_the_next_epoch_starts_at_its_first_batch_with_an_empty_tally():
    position = Position(stage=1, epoch=4, batch=2, iteration=22, tally=Tally({"loss": 1.0}))
    position.next_epoch()
    assert position.state_dict() == {"stage": 1, "epoch": 5, "batch": 0, "iteration": 22, "tally": {}}


def draws():
    return random.random(), float(np.random.rand()), float(torch.rand(()))


@pytest.mark.parametrize("seed", [0, 7, 2**32 + 5])
def test_one_seed_sets_every_generator(seed):
    seed_everything(seed)
    first = draws()
    draws()
    seed_everything(seed)
    assert draws() == first


def test_a_restored_state_goes_on_where_it_was_taken():
    torch.rand(5)
    state = random_state()
    expected = torch.randn(9)
    torch.manual_seed(123)
    restore_random_state(state)
    assert torch.equal(torch.randn(9), expected)
