from pathlib import Path

import pytest

from icda.data import create_task
from icda.training import TrainConfig, Trainer
from icda.training.run import build, make_accelerator


@pytest.mark.parametrize("name", ["afr", "crt", "dfr", "jtt", "lws", "oltr"])
def test_a_single_epoch_is_refused_before_training(name: str, tmp_path: Path) -> None:
    config, task = TrainConfig(task="digits", model="mlp", method=name, epochs=1), create_task("digits_coloured")
    networks, method = build(config, task)
    with pytest.raises(ValueError, match=f"{name} trains in two stages and needs 2 epochs or more, got 1"):
        Trainer(config, task, networks, method, tmp_path / "run", make_accelerator("no"))
    assert not (tmp_path / "run").exists()
