"""The rivals for wrong labels in whole trainings: they learn, resume bit for bit, and say what they do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from icda.methods.d2l import D2L
from icda.training import TrainConfig, Trainer, train
from icda.training.checkpoint import load_checkpoint
from icda.training.run import build, load_task, make_accelerator

Configure = Callable[..., TrainConfig]

# Options under which a run of three epochs shows all that a method does.
RIVALS: dict[str, dict[str, Any]] = {
    "apl": {"a": 1.0, "b": 0.1},  # its gradients at b=1 are too large for the first epochs at a rate of 0.1
    "co_teaching": {"noise_rate": 0.4, "ramp_epochs": 2},
    "jocor": {"noise_rate": 0.4, "ramp_epochs": 2},
    "ldmi": {"first_stage": 0.6, "second_rate": 1e-3},
    "d2l_that_turns": {},
    "self_paced": {"burn_in": 0.4},
    "mentornet": {"burn_in": 0.4},
}


class Turning(D2L):
    """Finds its turning point in the second epoch, whatever the features do."""

    def turns(self, epoch: int) -> bool:
        return epoch == 1


@pytest.fixture(autouse=True)
def _turning(register_method: Callable[[str, type[Any]], str]) -> None:
    register_method("d2l_that_turns", Turning)


@pytest.mark.parametrize("method", RIVALS)
def test_a_run_that_was_stopped_ends_bit_identical_and_has_learned(
    method: str,
    configure: Configure,
    train_for: Callable[..., None],
    assert_same_run: Callable[[Path, Path], None],
) -> None:
    settings = {"method": method, "options": RIVALS[method], "task": "digits_flip_noise"}
    whole, stopped = configure("whole", **settings), configure("stopped", checkpoint_every=4, **settings)
    result = train(whole)
    assert result["metrics"]["accuracy"] > 0.3
    for steps in (6, 17, 20):  # within the first epoch, on the border of two, within a later one
        train_for(stopped, steps, resume=True)
    torch.rand(17)
    train(stopped, resume=True)
    assert_same_run(whole.folder(), stopped.folder())


@pytest.mark.parametrize("method", ["co_teaching", "jocor"])
def test_one_network_too_few_is_refused_before_anything_is_written(method: str, configure: Configure) -> None:
    config = configure("run", method=method)
    task = load_task(config)
    networks, made = build(config, task)
    assert len(networks) == 2
    with pytest.raises(ValueError, match="trains 2 networks"):
        Trainer(config, task, networks[:1], made, config.folder(), make_accelerator("no"))
    assert not config.folder().exists()


@pytest.mark.parametrize("method", ["co_teaching", "jocor"])
def test_the_share_dropped_is_in_the_log(method: str, configure: Configure) -> None:
    result = train(configure("run", method=method, options={"noise_rate": 0.4, "ramp_epochs": 2}))
    assert [line["drop_rate"] for line in result["history"]] == pytest.approx([0, 0.2, 0.4])


def test_without_noise_co_teaching_is_two_plain_trainings(configure: Configure) -> None:
    plain = configure("plain", method="ce")
    pair = configure("pair", method="co_teaching", options={"noise_rate": 0.0})
    for config in (plain, pair):
        train(config)
    one = load_checkpoint(plain.folder() / "checkpoint.pt")["networks"][0]
    two = load_checkpoint(pair.folder() / "checkpoint.pt")["networks"][0]
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-3, atol=1e-4)


def test_the_determinants_stage_starts_from_its_own_rate(configure: Configure) -> None:
    options = {"first_stage": 0.5, "second_rate": 1e-4}
    result = train(configure("run", method="ldmi", options=options, epochs=6, milestones=(0.5,)))
    assert [line["stage"] for line in result["history"]] == ["cross_entropy"] * 3 + ["determinant"] * 3
    wanted = [0.1, 0.1, 0.01, 1e-4, 1e-4, 1e-5]
    assert [line["learning_rate"] for line in result["history"]] == pytest.approx(wanted)


def test_a_batch_too_small_for_the_determinant_is_refused_before_anything_is_written(configure: Configure) -> None:
    config = configure("run", method="ldmi", batch_size=8)
    with pytest.raises(ValueError, match="a batch of 8 cannot hold 10 classes"):
        train(config)
    assert not config.folder().exists()


def test_the_turn_changes_the_labels_and_is_in_the_log(configure: Configure) -> None:
    config = configure("run", method="d2l_that_turns", task="digits_flip_noise")
    history = train(config)["history"]
    assert history[0]["label_trust"] == 1
    assert all(0 < line["label_trust"] < 1 for line in history[1:])
    assert all(line["dimension"] > 0 for line in history)
    state = load_checkpoint(config.folder() / "checkpoint.pt")["method"]
    assert int(state["turning_epoch"]) == 1
    assert state["dimensions"].tolist() == [line["dimension"] for line in history]


def test_every_sample_counts_in_the_burn_in_and_fewer_after_it(configure: Configure) -> None:
    options = {"burn_in": 0.3, "burn_in_dropout": 0.0, "dropout": 0.0, "percentile": 0.6}
    history = train(configure("run", method="self_paced", task="digits_flip_noise", options=options))["history"]
    assert history[0]["weight_mean"] > 0.95  # the burn-in ends a batch or two before the epoch
    assert all(0.4 < line["weight_mean"] < 0.8 for line in history[1:])
