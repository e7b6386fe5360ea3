from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from icda.data import create_task
from icda.methods import Method, Setup, Stage
from icda.training import DivergedError, TrainConfig, Trainer, train
from icda.training.checkpoint import load_checkpoint
from icda.training.progress import ProgressView
from icda.training.run import build, make_accelerator
from icda.training.stage_run import make_optimizer


class Simple(Method):
    """Cross entropy; tests override what they are about."""

    def __init__(self, setup):
        super().__init__()


def trainer_of(config):
    task = create_task(config.task)
    networks, method = build(config, task)
    return Trainer(config, task, networks, method, config.folder(), make_accelerator(config.precision))


def cloned(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


class Diary(Simple):
    """Writes down every call."""

    calls: ClassVar[list[tuple[Any, ...]]] = []

    def stages(self, epochs):
        return [Stage(1, "first"), Stage(epochs - 1, "second", trains="head")]

    def on_stage_start(self, context):
        self.calls.append(("stage", context.stage.name, context.epoch))

    def on_epoch_start(self, context):
        self.calls.append(("start", context.epoch))

    def on_epoch_end(self, context):
        self.calls.append(("end", context.epoch))

    def step(self, batch, context):
        self.calls.append(("step", context.epoch, context.iteration, round(context.progress, 3)))
        return super().step(batch, context)

    def predict(self, models, inputs):
        self.calls.append(("predict", len(models)))
        return super().predict(models, inputs)


def test_hooks_steps_and_predictions_come_in_order(configure, register_method):
    Diary.calls.clear()
    train(configure("run", method=register_method("diary", Diary), epochs=3, batch_size=150))

    def epoch(number):
        steps = [("step", number, 2 * number + k, round((2 * number + k) / 6, 3)) for k in range(2)]
        return [("start", number), *steps, ("end", number), ("predict", 1)]

    test, explanations = [("predict", 1)], [("predict", 1), ("predict", 1)]  # of the training and of the test split
    assert Diary.calls == [
        *[("stage", "first", 0), *epoch(0)],
        *[("stage", "second", 1), *epoch(1), *epoch(2)],
        *test,
        *explanations,
    ]


def test_the_history_holds_the_means_of_the_epoch(configure, register_method):
    losses = []

    class Recorded(Simple):
        def step(self, batch, context):
            result = super().step(batch, context)
            hits = int((result.logits.argmax(1) == batch.targets).sum())
            losses.append((float(result.loss), len(batch.targets), hits))
            return result._replace(extra={"temperature": 3.0})

    record = train(configure("run", method=register_method("recorded", Recorded), epochs=1))["history"][0]
    count = sum(size for _, size, _ in losses)
    assert record["train_loss"] == pytest.approx(sum(loss * size for loss, size, _ in losses) / count)
    assert record["train_accuracy"] == pytest.approx(sum(hits for _, _, hits in losses) / count)
    assert record["temperature"] == pytest.approx(3.0)
    assert (record["epoch"], record["stage"], record["learning_rate"]) == (0, "train", 0.1)
    assert record["validation_accuracy"] is not None


def test_the_view_is_told_where_a_resumed_run_stands(configure, train_for):
    told = []

    class Ear(ProgressView):
        def start(self, iteration, num_iterations):
            told.append((iteration, num_iterations))

        def step(self, epoch, num_epochs, loss, accuracy):
            told.append((epoch, num_epochs))

        def epoch(self, record, num_epochs):
            told.append((record["epoch"],))

    config = configure("run", epochs=2, checkpoint_every=3)
    train_for(config, 8)
    train(config, resume=True, view=Ear())
    assert told == [(6, 10), (1, 2), (1, 2), (1, 2), (1, 2), (1,)]


def test_optimisers_take_their_settings_from_the_configuration():
    config, model = TrainConfig(learning_rate=0.3, momentum=0.8, weight_decay=0.01), nn.Linear(2, 2)
    sgd = make_optimizer(config, model).param_groups[0]
    assert (sgd["lr"], sgd["momentum"], sgd["weight_decay"], sgd["nesterov"]) == (0.3, 0.8, 0.01, True)
    plain = make_optimizer(replace(config, momentum=0.0), model).param_groups[0]
    assert (plain["momentum"], plain["nesterov"]) == (0.0, False)
    adam = make_optimizer(replace(config, optimizer="adam"), model)
    assert isinstance(adam, torch.optim.Adam)
    assert (adam.param_groups[0]["lr"], adam.param_groups[0]["weight_decay"]) == (0.3, 0.01)


def test_the_gradient_is_clipped_over_all_weights_together(configure, register_method):
    class Steep(Simple):
        def loss(self, output, batch, context):
            return 1e6 * super().loss(output, batch, context)

    config = configure("run", method=register_method("steep", Steep), model="mlp", epochs=1, batch_size=287)
    config = replace(config, clip_norm=0.5, momentum=0.0, weight_decay=0.0, learning_rate=1.0)
    trainer = trainer_of(config)
    before = cloned(trainer.models[0])
    trainer.run()
    moved = [(value - before[name]).square().sum() for name, value in trainer.models[0].state_dict().items()]
    assert float(torch.stack(moved).sum().sqrt()) == pytest.approx(0.5, rel=1e-4)


def test_each_step_uses_the_rate_of_the_schedule(configure, register_method):
    rates = []

    class Watching(Simple):
        def step(self, batch, context):
            rates.append(context.learning_rate)
            return super().step(batch, context)

    train(configure("run", method=register_method("watching", Watching), schedule="constant", warmup_epochs=2))
    assert rates == pytest.approx([0.1 * min(k / 10, 1) for k in range(15)])


def test_two_stages_that_change_nothing_train_like_one(configure, register_method):
    class Split(Simple):
        def stages(self, epochs):
            return [Stage(1), Stage(epochs - 1)]

    one, two = (
        trainer_of(configure(name, method=register_method(name, cls)))
        for name, cls in (("one", Simple), ("two", Split))
    )
    one.run()
    two.run()
    expected = one.models[0].state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in two.models[0].state_dict().items())


class Diverging(Simple):
    """From iteration seven on the loss, or only its gradient, is not a number."""

    def __init__(self, setup: Setup, *, part: str = "loss") -> None:
        super().__init__(setup)
        self.part = part

    def loss(self, output, batch, context):
        loss = super().loss(output, batch, context)
        if context.iteration < 7:
            return loss
        return loss * float("inf") if self.part == "loss" else loss + 0 * (loss - loss).sqrt()


@pytest.mark.parametrize("part", ["loss", "gradient"])
def test_a_diverged_training_stops_with_advice_and_keeps_the_last_good_checkpoint(part, configure, register_method):
    config = configure(
        "run", method=register_method("diverging", Diverging), options={"part": part}, checkpoint_every=1
    )
    with pytest.raises(DivergedError, match=r"in epoch 2, iteration \d: lower --learning-rate or set --clip-norm"):
        train(config)
    state = load_checkpoint(config.folder() / "checkpoint.pt")
    assert state["position"]["iteration"] == 7
    assert all(value.isfinite().all() for value in state["networks"][0].values())
    assert not (config.folder() / "result.json").exists()


def test_weights_that_explode_in_the_last_step_of_an_epoch_are_noticed_too(configure):
    config = configure("run", batch_size=287, model="mlp", learning_rate=1e38, epochs=2)
    with pytest.raises((DivergedError, ValueError), match=r"(?i)diverged|NaN or infinite"):
        train(config)
    assert not (config.folder() / "checkpoint.pt").exists()


def test_without_a_checkpoint_none_is_promised(configure, register_method):
    class Hopeless(Simple):
        def loss(self, output, batch, context):
            return super().loss(output, batch, context) * float("nan")

    with pytest.raises(DivergedError, match=r"the loss became nan in epoch 1, iteration 0: .* Nothing was saved yet"):
        train(configure("run", method=register_method("hopeless", Hopeless)))


class TwoStages(Simple):
    def on_stage_start(self, context):
        self.optimizers = list(context.optimizers)

    def stages(self, epochs):
        return [Stage(1, "first", restart=True), Stage(epochs - 1, "second", restart=True)]


def test_a_stage_leaves_no_optimiser_behind(configure, register_method):
    """In half precision all that the accelerator knows are unscaled, so an old one would scale gradients twice."""
    trainer = trainer_of(configure("run", method=register_method("two_stages", TwoStages), epochs=2))
    trainer.run()
    assert trainer.position.stage == 1
    assert trainer.accelerator._optimizers == trainer.method.optimizers
