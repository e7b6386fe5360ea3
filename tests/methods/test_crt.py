from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from icda.data import create_task
from icda.data.task import Batch
from icda.methods import Setup
from icda.methods.crt import ClassifierRetraining
from icda.models.base import FeatureClassifier
from icda.training import TrainConfig, Trainer
from icda.training.run import build, make_accelerator

SETUP = Setup(num_classes=3, feature_dim=5, class_counts=torch.tensor([6, 3, 1]), epochs=10, num_samples=10)


class Watched(ClassifierRetraining):
    """Notes the network and the labels of every step."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup, first_stage=0.5)
        self.seen: list[tuple[str, dict[str, torch.Tensor], torch.Tensor]] = []

    def step(self, batch: Batch, context: Any) -> Any:
        state = {name: value.clone() for name, value in context.models[0].state_dict().items()}
        self.seen.append((context.stage.name, state, batch.targets.clone()))
        return super().step(batch, context)


def test_a_training_freezes_the_encoder_and_its_statistics_and_begins_the_head_anew(tmp_path: Path) -> None:
    config = TrainConfig(task="digits", model="mlp", method="crt", epochs=2, batch_size=64, weight_decay=0.01)
    task = create_task("digits_lt")
    networks, _ = build(config, task)
    encoder = nn.Sequential(*networks[0].encoder, nn.BatchNorm1d(networks[0].feature_dim))
    network = FeatureClassifier(encoder, networks[0].head)
    method = Watched(Setup.of(task, network, 2))
    trainer = Trainer(config, task, [network], method, tmp_path, make_accelerator("no"))
    trainer.run()
    first = [state for name, state, _ in method.seen if name == "representation"]
    second = [state for name, state, _ in method.seen if name == "classifier"]
    end = trainer.models[0].state_dict()
    for name, value in end.items():
        if name.startswith("encoder"):
            assert torch.equal(second[0][name], value), name
    assert not torch.equal(second[0]["head.weight"], end["head.weight"])
    bound = 1 / network.feature_dim**0.5
    assert second[0]["head.weight"].abs().max() <= bound < first[-1]["head.weight"].abs().max()
    drawn = torch.cat([targets for name, _, targets in method.seen if name == "classifier"])
    counts, expected = torch.bincount(drawn, minlength=10), len(drawn) / 10
    assert task.class_counts.min() < expected / 3
    assert (counts - expected).abs().max() < 4 * expected**0.5


def test_a_single_epoch_is_refused_before_training(tmp_path: Path) -> None:
    config = TrainConfig(task="digits", model="mlp", method="crt", epochs=1)
    task = create_task("digits")
    networks, method = build(config, task)
    with pytest.raises(ValueError, match="crt trains in two stages and needs 2 epochs or more, got 1"):
        Trainer(config, task, networks, method, tmp_path / "run", make_accelerator("no"))
    assert not (tmp_path / "run").exists()
