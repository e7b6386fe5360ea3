"""A stage begins with what its method asks for, and is taken up again without doing so a second time."""

import copy

import pytest
import torch

from icda.data import create_task
from icda.methods import Method, Stage
from icda.models import create_model
from icda.training import TrainConfig, Trainer, train
from icda.training.checkpoint import load_checkpoint
from icda.training.plan import Plan, Position, learning_rate, random_state
from icda.training.run import make_accelerator
from icda.training.stage_run import StageRun
from support import assert_same

STAGES = (Stage(2, "first"), Stage(1, "head", trains="head", restart=True, reset_head=True, learning_rate=0.5))


class Staged(Method):
    """Counts the calls of its hook."""

    def __init__(self, stages):
        super().__init__()
        self.planned, self.begun = list(stages), []

    def stages(self, epochs):
        return self.planned

    def on_stage_start(self, context):
        self.begun.append(context.stage.name)


@pytest.fixture
def make(tmp_path):
    def make(*stages, model="linear"):
        task = create_task("digits_lt")
        settings = {"model": model, "epochs": 3, "batch_size": 64, "learning_rate": 0.1, "weight_decay": 0.0}
        config = TrainConfig(**settings, out=str(tmp_path))
        network = create_model(model, task.num_classes, task.input_shape)
        return Trainer(config, task, [network], Staged(stages or STAGES), tmp_path, make_accelerator("no"))

    return make


def batch_of(trainer):
    return next(trainer.batches.in_order(STAGES[0]))


def test_a_stage_that_begins_resets_its_head_and_calls_the_hook_and_one_that_is_resumed_does_neither(make):
    trainer = make()
    first = StageRun.begin(trainer)
    first.step(batch_of(trainer))
    trainer.position.stage = 1
    before = trainer.models[0].head_weight.detach().clone()
    saved = {"optimizers": [], "random": random_state()}
    StageRun.resume(trainer, saved)
    assert torch.equal(trainer.models[0].head_weight, before)
    assert trainer.method.begun == ["first"]
    StageRun.begin(trainer, first)
    assert not torch.equal(trainer.models[0].head_weight, before)
    assert trainer.method.begun == ["first", "head"]


def test_a_frozen_encoder_stays_with_its_batch_norm_buffers_and_a_network_may_go_back_to_where_it_began(make):
    stages = Stage(1, "head", trains="head"), Stage(1, "afresh", reset_network=True)
    trainer = make(*stages, model="small_cnn")
    network = trainer.models[0]
    begun = copy.deepcopy(network.state_dict())
    assert any("running_mean" in name for name in begun)
    run = StageRun.begin(trainer)
    run.step(batch_of(trainer))
    moved = {name for name, value in network.state_dict().items() if not torch.equal(value, begun[name])}
    assert moved == {"head.weight", "head.bias"}
    trainer.position.stage = 1
    StageRun.begin(trainer, run)
    assert_same(network.state_dict(), begun)


@pytest.mark.parametrize("restart", [True, False])
def test_optimisers_go_on_from_the_stage_before_unless_it_restarts(restart, make):
    trainer = make(Stage(2, "first"), Stage(1, "second", restart=restart))
    first = StageRun.begin(trainer)
    first.step(batch_of(trainer))
    trainer.position.stage = 1
    second = StageRun.begin(trainer, first)
    (state,) = second.optimizer_states()
    assert bool(state["state"]) is not restart
    if not restart:
        torch.testing.assert_close(state["state"], first.optimizer_states()[0]["state"], rtol=0, atol=0)


def test_a_resumed_stage_has_the_optimisers_and_random_numbers_of_its_checkpoint(make):
    trainer = make()
    run = StageRun.begin(trainer)
    run.step(batch_of(trainer))
    saved = {"optimizers": run.optimizer_states(), "random": random_state()}
    wanted = torch.rand(3)
    torch.rand(17)
    resumed = StageRun.resume(trainer, saved)
    assert torch.equal(torch.rand(3), wanted)
    torch.testing.assert_close(resumed.optimizer_states()[0]["state"], saved["optimizers"][0]["state"], rtol=0, atol=0)


def test_a_context_says_where_training_stands_from_its_first_moment_on(make):
    trainer = make()
    position = trainer.position = Position(stage=1, epoch=2, iteration=10)
    run = StageRun.begin(trainer)
    assert (run.context.epoch, run.context.iteration, run.context.stage.name) == (2, 10, "head")
    assert run.context.progress == 10 / trainer.plan.num_iterations
    assert not next(trainer.models[0].encoder.parameters(), torch.zeros(1)).requires_grad
    position.iteration = 11
    run.step(batch_of(trainer))
    assert run.context.iteration == 11


def test_the_rate_of_a_stage_follows_its_own_schedule_or_that_of_the_whole_training():
    config = TrainConfig(epochs=3, learning_rate=0.1, schedule="cosine")
    plan = Plan.of(STAGES, lambda stage: 5)
    assert (plan.num_epochs, plan.num_iterations) == (3, 15)
    assert plan.learning_rate(config, 0, 1.5) == learning_rate(config, 1.5, 3)
    assert plan.learning_rate(config, 1, 2.5) == pytest.approx(5 * learning_rate(config, 0.5, 1, 3))


def test_a_stage_on_top_of_the_epochs_leaves_the_milestones_of_the_others_where_they_are():
    config = TrainConfig(epochs=10, learning_rate=0.1, schedule="step", milestones=(6, 8))
    plan = Plan.of([Stage(5, "before", restart=True), Stage(10, "run", restart=True)], lambda stage: 5)
    rates = [plan.learning_rate(config, 1, 5 + epoch) for epoch in range(10)]
    assert rates == pytest.approx([0.1] * 6 + [0.01] * 2 + [0.001] * 2)
    assert plan.learning_rate(config, 0, 2.9) == pytest.approx(0.1)
    assert plan.learning_rate(config, 0, 3) == pytest.approx(0.01), "moved in proportion"


def test_a_rank_with_half_a_share_of_the_samples_makes_half_a_step(make):
    steps = []
    for share in (1.0, 0.5):
        torch.manual_seed(0)
        trainer = make()
        run = StageRun.begin(trainer)
        weight = trainer.models[0].head_weight.detach().clone()
        trainer.batches.share = lambda batch, share=share: share
        run.step(batch_of(trainer))
        steps.append(trainer.models[0].head_weight.detach() - weight)
    assert steps[0].abs().max() > 0
    torch.testing.assert_close(steps[1], steps[0] / 2)


def test_a_stage_carries_its_step_its_loss_its_start_and_its_end(make):
    told = []

    def step(batch, context):
        told.append("step")
        return trainer.method.step(batch, context)

    def loss(output, batch, context):
        told.append("loss")
        return output.logits.sum() * 0

    hooks = {name: (lambda context, name=name: told.append(name)) for name in ("on_start", "on_end")}
    trainer = make(Stage(2, "own", step=step, loss=loss, **hooks), Stage(1, "plain"))
    trainer.method.on_stage_end = lambda context: told.append(f"{context.stage.name} ends")
    run = StageRun.begin(trainer)
    assert float(run.step(batch_of(trainer)).loss) == 0
    run.end_epoch()
    assert told == ["on_start", "step", "loss"], "the first of two epochs"
    trainer.position.epoch = 1
    run.end_epoch()
    assert told[3:] == ["on_end", "own ends"]
    trainer.position.stage, trainer.position.epoch = 1, 2
    plain = StageRun.begin(trainer, run)
    assert float(plain.step(batch_of(trainer)).loss) > 0
    plain.end_epoch()
    assert told[5:] == ["plain ends"]


def test_what_a_stage_found_at_its_end_is_not_looked_for_again_by_a_resumed_run(tmp_path, register_method, train_for):
    ends = []

    class Finder(Method):
        def __init__(self, setup):
            super().__init__()
            self.register_buffer("found", torch.tensor(0))

        def find(self, context):
            ends.append(context.epoch)
            self.found.add_(1)

        def stages(self, epochs):
            return [Stage(1, "first", on_end=self.find), Stage(epochs - 1, "second")]

    name = register_method("finder", Finder)
    config = TrainConfig(model="linear", method=name, epochs=3, batch_size=64, out=str(tmp_path / "run"))
    train_for(config, 7)  # within the second stage
    train(config, resume=True)
    assert ends == [0]
    assert load_checkpoint(tmp_path / "run" / "checkpoint.pt")["method"]["found"] == 1
