from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.data import create_task
from icda.data.task import Batch
from icda.methods import Context, Setup, Stage, create_method
from icda.methods.dfr import DFR
from icda.models.base import FeatureClassifier, Output
from icda.training import TrainConfig, train
from icda.training.checkpoint import load_checkpoint

SETUP = Setup(3, 5, torch.tensor([8, 8, 8]), epochs=10, num_samples=24)
INPUTS = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
TARGETS = torch.arange(24) % 3
FIRST, HEAD = DFR(SETUP).stages(10)


@pytest.fixture
def model() -> FeatureClassifier:
    return FeatureClassifier(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5)), nn.Linear(5, 3))


def context_of(model: FeatureClassifier, stage: Stage) -> Context:
    def batches() -> Iterator[Batch]:
        for rows in torch.arange(24).split(7):
            yield Batch(INPUTS[rows], TARGETS[rows], None, rows)

    return Context([model], [model], [], lambda loss: None, batches, stage=stage)


def test_the_head_learns_balanced_validation_data_under_a_schedule_of_its_own() -> None:
    assert DFR(SETUP, first_stage=0.7, head_learning_rate=0.3).stages(10) == [
        Stage(7, "representation", restart=True),
        Stage(
            3,
            "head",
            trains="head",
            sampling="group_balanced",
            restart=True,
            reset_head=True,
            split="validation",
            learning_rate=0.3,
        ),
    ]
    for epochs in (2, 3, 50):
        for share in (0.001, 0.5, 0.999):
            lengths = [stage.epochs for stage in DFR(SETUP, first_stage=share).stages(epochs)]
            assert len(lengths) == 2
            assert min(lengths) >= 1
            assert sum(lengths) == epochs


def test_the_penalty_is_that_of_the_weights_of_standardised_features(model: FeatureClassifier) -> None:
    model.double().eval()
    method = DFR(SETUP, l1=0.03).double()
    method.feature_scale.copy_(torch.tensor([0.5, 2.0, 1.0, 3.0, 0.1]))
    output, batch = model(INPUTS.double()), Batch(INPUTS, TARGETS, None, torch.arange(24))
    weight, bias = model.head.weight, model.head.bias
    assert isinstance(weight, Tensor)
    assert isinstance(bias, Tensor)
    centre = output.features.mean(0).detach()
    standardised = (output.features.detach() - centre) / method.feature_scale
    moved = [[weight[c, j] * method.feature_scale[j] for j in range(5)] for c in range(3)]
    expected = torch.zeros((), dtype=torch.float64)
    for i in range(24):
        logits = [
            sum((moved[c][j] * standardised[i, j] + weight[c, j] * centre[j] for j in range(5)), bias[c])
            for c in range(3)
        ]
        expected = expected - torch.stack(logits).log_softmax(0)[TARGETS[i]] / 24
    expected = expected + 0.03 * torch.stack([value.abs() for row in moved for value in row]).sum()
    found = method.loss(output, batch, context_of(model, HEAD))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    slopes = [torch.autograd.grad(value, [weight], retain_graph=True)[0] for value in (found, expected)]
    torch.testing.assert_close(slopes[0], slopes[1], rtol=0, atol=1e-12)


def test_the_first_stage_and_a_penalty_of_zero_are_cross_entropy(model: FeatureClassifier) -> None:
    output, batch = model(INPUTS), Batch(INPUTS, TARGETS, None, torch.arange(24))
    plain = F.cross_entropy(output.logits, TARGETS)
    assert torch.equal(DFR(SETUP, l1=0.5).loss(output, batch, context_of(model, FIRST)), plain)
    assert torch.equal(DFR(SETUP).loss(output, batch, context_of(model, HEAD)), plain)


def test_features_are_scaled_by_their_deviation_over_the_training_set(model: FeatureClassifier) -> None:
    with torch.no_grad():
        model.encoder[1].weight[2] = 0  # type: ignore[index,union-attr,operator]
        model.encoder[1].bias[2] = 0.7  # type: ignore[index,union-attr,operator]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    model.encoder.eval()
    method = DFR(SETUP, l1=0.1)
    method.on_stage_start(context_of(model, FIRST))
    assert method.feature_scale.tolist() == [1.0] * 5
    method.on_stage_start(context_of(model, HEAD))
    assert (model.training, model.encoder.training) == (True, False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model.double().eval()
    features = model(INPUTS.double()).features
    for j in range(5):
        deviation = (sum((x - features[:, j].mean()) ** 2 for x in features[:, j]) / 24) ** 0.5
        wanted = 1.0 if j == 2 else float(deviation.detach())  # type: ignore[union-attr]
        assert float(method.feature_scale[j]) == pytest.approx(wanted, rel=1e-5)
    restored = DFR(SETUP, l1=0.1)
    restored.load_state_dict(method.state_dict())
    assert torch.equal(restored.feature_scale, method.feature_scale)


def test_without_a_penalty_there_is_no_pass_over_the_training_set(model: FeatureClassifier) -> None:
    context = context_of(model, HEAD)
    context.training_batches = lambda: pytest.fail("a pass nobody needs")
    DFR(SETUP).on_stage_start(context)


def configure(folder: Path, method: str, epochs: int, **settings: Any) -> TrainConfig:
    common = {"task": "digits_coloured", "model": "small_cnn", "batch_size": 60, "learning_rate": 0.05}
    return TrainConfig(**{**common, "method": method, "epochs": epochs, "out": str(folder), **settings})  # type: ignore[arg-type]


def test_a_training_learns_a_new_head_on_the_encoder_of_a_plain_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Batch] = []
    heads: list[Tensor] = []

    def loss(self: DFR, output: Output, batch: Batch, context: Context) -> Tensor:
        if context.stage.name == "head":
            seen.append(batch)
            assert not any(module.training for module in context.models[0].encoder.modules())
        return F.cross_entropy(output.logits, batch.targets)

    def on_stage_start(self: DFR, context: Context) -> None:
        heads.append(context.models[0].head.weight.detach().clone())  # type: ignore[union-attr,operator]

    monkeypatch.setattr(DFR, "loss", loss)
    monkeypatch.setattr(DFR, "on_stage_start", on_stage_start)
    options = {"first_stage": 0.5, "head_learning_rate": 0.4}
    result = train(configure(tmp_path / "dfr", "dfr", 4, options=options))
    train(configure(tmp_path / "erm", "cross_entropy", 2))
    found, plain = (load_checkpoint(tmp_path / name / "model.pt")["networks"][0] for name in ("dfr", "erm"))
    assert any("running_mean" in name for name in plain)
    for name, value in plain.items():
        assert torch.equal(found[name], value) == name.startswith("encoder."), name
    assert not torch.equal(heads[1], plain["head.weight"]), "the head starts afresh"
    validation = create_task("digits_coloured").validation
    assert validation is not None
    assert validation.groups is not None
    assert len(seen) == 4  # two epochs of 100 samples
    for batch in seen:
        assert torch.equal(batch.targets.cpu(), validation.targets[batch.index])
        assert batch.groups is not None
        assert torch.equal(batch.groups.cpu(), validation.groups[batch.index])
    assert [line["stage"] for line in result["history"]] == ["representation"] * 2 + ["head"] * 2
    assert max(line["learning_rate"] for line in result["history"][:2]) <= 0.05
    assert 0.05 < result["history"][2]["learning_rate"] <= 0.4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first_stage": 0.0}, r"first_stage is a share of the epochs in \(0, 1\), got 0"),
        ({"first_stage": 1.0}, "first_stage is a share"),
        ({"l1": -0.1}, "l1 is a finite number, 0 or more, got -0.1"),
        ({"l1": float("nan")}, "l1 is a finite number"),
        ({"head_learning_rate": 0.0}, "head_learning_rate is a positive number or None, got 0"),
    ],
)
def test_a_bad_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_method("dfr", SETUP, options)


def test_a_single_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="dfr trains the network, then the head: it needs 2 epochs or more, got 1"):
        DFR(Setup(3, 5, torch.ones(3), epochs=1, num_samples=24))


def test_selection_on_the_samples_it_learns_from_is_refused_before_training(tmp_path: Path) -> None:
    config = TrainConfig("digits_coloured", method="dfr", epochs=4, selection="validation_accuracy", out=str(tmp_path))
    with pytest.raises(ValueError, match=r"'dfr' trains on the validation split, .*: use --selection last"):
        train(config)
    assert not (tmp_path / "result.json").exists()
