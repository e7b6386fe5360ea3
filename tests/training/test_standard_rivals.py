"""The rivals for standard data in whole trainings: they learn, they resume bit for bit, two ranks do what one does."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from icda.training import TrainConfig, evaluate_folder, train
from icda.training.checkpoint import load_checkpoint

Configure = Callable[..., TrainConfig]

# Options under which a run of three epochs shows all that a method does.
RIVALS: dict[str, dict[str, Any]] = {
    "large_margin_softmax": {"base": 5.0, "gamma": 0.1},
    "center_loss": {"weight": 0.01},
    "generalized_cross_entropy": {},
    "truncated_lq": {"threshold": 0.15, "refresh": 1},
    "disturb_label": {"alpha": 0.3},
    "acgan": {"width": 8, "start": 0.4},
}


@pytest.mark.parametrize("method", RIVALS)
def test_a_run_that_was_stopped_ends_bit_identical_and_has_learned(
    method: str,
    configure: Configure,
    train_for: Callable[..., None],
    assert_same_run: Callable[[Path, Path], None],
) -> None:
    settings = {"method": method, "options": RIVALS[method], "task": "digits"}
    whole, stopped = configure("whole", **settings), configure("stopped", checkpoint_every=4, **settings)
    result = train(whole)
    assert result["history"][-1]["train_loss"] < result["history"][0]["train_loss"]
    assert result["metrics"]["accuracy"] > 0.3
    for steps in (6, 17, 20):  # within the first epoch, on the border of two, within a later one
        train_for(stopped, steps, resume=True)
    torch.rand(17)
    train(stopped, resume=True)
    assert_same_run(whole.folder(), stopped.folder())


def test_truncation_gives_up_samples_and_says_how_many(configure: Configure) -> None:
    options = {"threshold": 0.15, "refresh": 1}
    result = train(configure("run", method="truncated_lq", options=options, task="digits_uniform_noise"))
    shares = [line["kept_share"] for line in result["history"]]
    assert shares[0] == 1
    assert all(0 < share < 1 for share in shares[1:])


def test_disturb_label_without_disturbance_is_cross_entropy_bit_for_bit(configure: Configure) -> None:
    configs = configure("plain", method="ce"), configure("none", method="disturb_label", options={"alpha": 0.0})
    for config in configs:
        train(config)
    one, two = (load_checkpoint(config.folder() / "checkpoint.pt")["networks"][0] for config in configs)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_gan_that_never_joins_leaves_the_classifier_bit_for_bit(configure: Configure) -> None:
    configs = configure("plain", method="ce"), configure("gan", method="acgan", options={"width": 8, "start": 1.0})
    for config in configs:
        train(config)
    one, two = (load_checkpoint(config.folder() / "checkpoint.pt")["networks"][0] for config in configs)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_gan_for_a_task_without_images_of_its_size_is_refused_before_any_training(configure: Configure) -> None:
    csv = configure("csv").folder().with_name("table.csv")
    csv.write_text("text,label\n" + "".join(f"word{i},{i % 2}\n" for i in range(40)))
    config = configure("run", method="acgan", data=str(csv))
    with pytest.raises(ValueError, match="acgan makes images"):
        train(config)
    assert not config.folder().exists()


@pytest.mark.parametrize("method", ["truncated_lq", "acgan"])
def test_a_trained_model_can_be_evaluated_from_its_folder(method: str, configure: Configure) -> None:
    config = configure("run", method=method, options=RIVALS[method], epochs=1)
    result = train(config)
    assert evaluate_folder(config.folder())["metrics"] == result["metrics"]


def ranked(method: str, folder: Path) -> TrainConfig:
    """Batches of 40: the last of an epoch has a size of its own."""
    options = RIVALS[method]
    return TrainConfig(model="mlp", method=method, options=options, epochs=3, batch_size=40, out=str(folder / method))


RANKED = ["large_margin_softmax", "center_loss", "truncated_lq", "disturb_label"]


def train_on_rank(rank: int) -> None:
    os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "2")
    os.environ |= dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank))
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}  # asked for, not used: there is a process group
    for method in RANKED:
        train(ranked(method, Path(os.environ["RANKED_FOLDER"])))


def test_two_ranks_do_what_one_process_does(
    run_on_ranks: Callable[..., list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKED_FOLDER", str(tmp_path / "two"))
    run_on_ranks(train_on_rank)
    for method in RANKED:
        train(ranked(method, tmp_path / "one"))
        one, two = (load_checkpoint(tmp_path / side / method / "checkpoint.pt") for side in ("one", "two"))
        for name, value in one["networks"][0].items():
            torch.testing.assert_close(two["networks"][0][name], value, rtol=0, atol=1e-5, msg=f"{method}: {name}")
        for mine, theirs in zip(two["history"], one["history"], strict=True):
            assert mine["train_loss"] == pytest.approx(theirs["train_loss"], abs=1e-5)
            assert mine.get("kept_share") == theirs.get("kept_share")
