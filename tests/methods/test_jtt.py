import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icda.data import create_task
from icda.data.task import Batch
from icda.methods import Context, Setup
from icda.methods.hard_samples import JTT
from icda.models.base import FeatureClassifier, Output
from icda.training import train
from support import make_context, make_network, short_run

SETUP = Setup(3, 5, torch.tensor([8, 8, 8]), epochs=10, num_samples=24)
INPUTS = torch.randn(24, 4, generator=torch.Generator().manual_seed(1))
TARGETS = torch.arange(24) % 3
context_of = partial(make_context, data=(INPUTS, TARGETS), num_epochs=10)
FIRST, SECOND = JTT(SETUP).stages(10)


@pytest.fixture
def model() -> FeatureClassifier:
    return make_model()


def make_model() -> FeatureClassifier:
    model = make_network()
    model.encoder[1].running_mean.normal_()  # type: ignore[index,union-attr,operator]
    return model


@torch.no_grad()
def errors_of(model: FeatureClassifier) -> Tensor:
    model.eval()
    wrong = [int(model(INPUTS[i : i + 1]).logits[0].argmax()) != int(TARGETS[i]) for i in range(24)]
    return torch.tensor(wrong)


def test_the_errors_are_those_of_the_network_in_evaluation_mode_when_the_first_stage_ends(
    model: FeatureClassifier,
) -> None:
    expected = errors_of(model)
    assert 0 < int(expected.sum()) < 24
    model.train()
    method = JTT(SETUP)
    method.find_errors(context_of(model, stage=FIRST, epoch=1))
    assert torch.equal(method.errors, expected)
    assert method.epoch_figures() == {"upweighted_errors": int(expected.sum())}
    assert [stage.on_end for stage in method.stages(10)] == [method.find_errors, None], "chosen once"


def test_a_step_has_the_expected_gradient_of_the_upsampled_training_set(model: FeatureClassifier) -> None:
    method = JTT(SETUP, up_weight=6)
    method.find_errors(context_of(model, stage=FIRST, epoch=1))
    weights = method.sampling_weights()
    assert weights.dtype == torch.float64
    logits = torch.randn(24, 3, dtype=torch.float64, requires_grad=True)
    value = torch.zeros((), dtype=torch.float64)
    for i in range(24):
        one = Output(torch.zeros(1, 5), logits[[i]])
        batch = Batch(INPUTS[[i]], TARGETS[[i]], None, torch.tensor([i]))
        value = value + weights[i] / weights.sum() * method.loss(one, batch, context_of(model, stage=SECOND, epoch=5))
    upsampled = [i for i in range(24) for _ in range(6 if method.errors[i] else 1)]
    expected = F.cross_entropy(logits[upsampled], TARGETS[upsampled])
    slopes = [torch.autograd.grad(loss, [logits])[0] for loss in (value, expected)]
    torch.testing.assert_close(slopes[0], slopes[1], rtol=0, atol=1e-12)


def test_a_network_without_errors_is_warned_of(model: FeatureClassifier) -> None:
    def all_right() -> Iterator[Batch]:
        answers = model.eval()(INPUTS).logits.argmax(1)
        yield Batch(INPUTS, answers, None, torch.arange(24))

    context, method = context_of(model, stage=FIRST, epoch=1), JTT(SETUP)
    context.training_batches = all_right
    with pytest.warns(UserWarning, match="no training sample wrong after 2 epochs, .* A smaller first_stage"):
        method.find_errors(context)
    assert method.sampling_weights().tolist() == [1.0] * 24
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method.find_errors(context_of(model, stage=FIRST, epoch=1))


def errors_on_rank(rank: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    model = make_model()
    model.encoder[1].running_mean.add_(rank)  # type: ignore[index,union-attr,operator]
    method = JTT(SETUP)
    method.find_errors(context_of(model, stage=FIRST, epoch=1))
    return errors_of(model), method.errors


def test_ranks_whose_running_figures_differ_agree_on_the_errors(run_on_ranks: Callable[..., list[Any]]) -> None:
    (first, agreed), (second, again) = run_on_ranks(errors_on_rank)
    assert not torch.equal(first, second)
    assert torch.equal(agreed, again)
    assert torch.equal(agreed, first | second)


class Recorder:
    """What a training with JTT on coloured digits did, seen from its hooks."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.starts: list[dict[str, Tensor]] = []
        self.ends: list[dict[str, Tensor]] = []
        self.errors = torch.zeros(0)
        self.drawn: list[Tensor] = []
        find = JTT.find_errors

        def on_stage_start(method: JTT, context: Context) -> None:
            self.starts.append(self.state(context))

        def find_errors(method: JTT, context: Context) -> None:
            find(method, context)
            self.ends.append(self.state(context))
            self.errors = method.errors

        def loss(method: JTT, output: Output, batch: Batch, context: Context) -> Tensor:
            if context.stage.name == "upweighted":
                self.drawn.append(batch.index)
            return F.cross_entropy(output.logits, batch.targets)

        for hook in (on_stage_start, find_errors, loss):
            patch.setattr(JTT, hook.__name__, hook)

    @staticmethod
    def state(context: Context) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in context.models[0].state_dict().items()}


def test_a_training_stops_erm_early_starts_again_and_draws_the_errors_more_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Recorder(monkeypatch)
    options = {"first_stage": 0.5, "up_weight": 6.0}
    result = train(short_run(tmp_path / "jtt", "jtt", epochs=4, options=options, attributes="unknown"))
    plain = train(short_run(tmp_path / "erm", "cross_entropy", epochs=4))
    losses = [[line["train_loss"] for line in run["history"][:2]] for run in (result, plain)]
    assert losses[0] == losses[1], "the first stage is the beginning of a plain training"
    first, second = seen.starts
    assert all(torch.equal(value, second[name]) for name, value in first.items()), "back to where the run began"
    assert not torch.equal(seen.ends[0]["head.weight"], first["head.weight"])
    assert [line["upweighted_errors"] for line in result["history"]] == [0, *[int(seen.errors.sum())] * 3]
    count, total = int(seen.errors.sum()), len(create_task("digits_coloured").train)
    drawn, share = seen.errors[torch.cat(seen.drawn)].double(), 6 * count / (6 * count + total - count)
    assert 0 < count < total
    assert float(drawn.mean()) == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / len(drawn)))
