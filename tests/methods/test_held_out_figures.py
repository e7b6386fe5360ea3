"""What Meta-ICDA's strength network reads of networks that have not learned from a sample."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from icda.cross_fit import HeldOut
from icda.errors import InputError
from icda.methods.meta_icda import HeldOutFigures, held_out_figures
from icda.training import TrainConfig, train


def test_figures_are_the_loss_and_the_entropy_of_the_classes_shares_where_logits_say_nothing() -> None:
    targets = torch.tensor([0, 0, 0, 1])
    found = held_out_figures(HeldOut(torch.zeros(4, 2), targets, 1.0)).values.double()
    entropy = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    expected = [[-math.log(0.75), entropy]] * 3 + [[-math.log(0.25), entropy]]
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.float64), atol=1e-5)


def test_networks_that_learned_the_labels_as_they_are_come_first() -> None:
    targets = torch.tensor([0, 1, 0, 1])
    plain = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    with_both = HeldOut(torch.zeros(4, 2), targets, 1.0, unflipped=plain)
    assert torch.equal(held_out_figures(with_both).values, held_out_figures(HeldOut(plain, targets, 1.0)).values)


def test_samples_with_another_label_or_number_get_what_stands_for_the_rest() -> None:
    figures = HeldOutFigures(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 1]))
    found = figures.rows(torch.tensor([0, 1, 1, 5]), torch.tensor([0, 1, 0, 0]), torch.tensor([-1.0, -2.0]))
    assert found.tolist() == [[1.0, 2.0], [3.0, 4.0], [-1.0, -2.0], [-1.0, -2.0]]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier") / "xrm"
    train(TrainConfig(task="digits_coloured_noise", method="xrm", model="mlp", epochs=2, out=str(folder)))
    return folder


def config(earlier: Path, folder: Path, **more: object) -> TrainConfig:
    options = {"held_out": str(earlier)}
    settings = {"task": "digits_coloured_noise", "method": "meta_icda_signed", "model": "mlp", "epochs": 2, **more}
    return TrainConfig(**settings, options=options, out=str(folder))  # type: ignore[arg-type]


def test_a_model_trained_with_them_is_explained_without_the_earlier_folder(earlier: Path, tmp_path: Path) -> None:
    from icda.training.run import load_folder

    train(config(earlier, tmp_path))
    earlier_elsewhere = earlier.rename(earlier.parent / "moved")
    try:
        _, task, networks, method = load_folder(tmp_path)
    finally:
        earlier_elsewhere.rename(earlier)
    batch = task.train.batch(torch.arange(8))
    with torch.no_grad():
        output = networks[0](batch.inputs)
        described = method.describe(output.logits, output.features, batch.targets, networks[0].head_weight, batch.index)
    assert described.shape == (8, 14)  # ten characteristics, two of the past, two of the networks
    assert torch.equal(described[:, 12:], method.held_out_figures.values[:8])


def test_the_run_itself_other_samples_and_runs_without_such_networks_are_refused(earlier: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="folder of this run itself"):
        train(config(tmp_path / "own", tmp_path / "own"))
    with pytest.raises(InputError, match=r"held_out=.*its samples have classes of"):
        train(config(earlier, tmp_path / "other", task="digits"))
    train(
        TrainConfig(
            task="digits_coloured_noise", method="cross_entropy", model="mlp", epochs=1, out=str(tmp_path / "ce")
        )
    )
    with pytest.raises(InputError, match=r"held_out=.*trained no cross-fitted networks"):
        train(config(tmp_path / "ce", tmp_path / "third"))
