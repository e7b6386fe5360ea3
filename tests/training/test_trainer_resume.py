"""A training that ends at any point and is resumed ends as if nothing had happened."""

import pytest
import torch
from torch import Tensor

from icda.methods import Method
from icda.training import TrainConfig, train, trainer


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory):
    """The folder of an uninterrupted run, made once for each configuration."""
    made = {}

    def run(**settings):
        key = tuple(sorted(settings.items()))
        if key not in made:
            made[key] = tmp_path_factory.mktemp("whole")
            train(TrainConfig(**{"batch_size": 64, "out": str(made[key]), **settings}))
        return made[key]

    return run


# An epoch of digits_lt has five batches of 64; risda_two_stage gives four epochs three of plain training, one of the head.
@pytest.mark.parametrize("selection", ["last", "validation_accuracy"])
@pytest.mark.parametrize(
    ("method", "epochs", "steps"),
    [
        *[("cross_entropy", 2, steps) for steps in (1, 5, 8)],
        *[("icda", 3, steps) for steps in (3, 4, 10, 14)],
        *[("risda_two_stage", 4, steps) for steps in (7, 15, 16, 18)],
    ],
)
def test_a_run_that_was_stopped_ends_bit_identical(method, epochs, steps, selection, whole_runs, assert_resumes):
    settings = {"method": method, "epochs": epochs, "selection": selection}
    assert_resumes(steps, whole=whole_runs(**settings), **settings)


@pytest.mark.parametrize("every", [0, 1, 3, 100])
def test_a_run_that_is_stopped_again_and_again_ends_bit_identical(every, whole_runs, assert_resumes):
    settings = {"method": "icda", "epochs": 3, "optimizer": "adam", "learning_rate": 0.01, "schedule": "cosine"}
    assert_resumes(2, 7, 6, every=every, whole=whole_runs(**settings), **settings)


@pytest.mark.parametrize("written", [True, False], ids=["after", "before"])
@pytest.mark.parametrize("call", [1, 2, 5, 7, 10])
def test_a_run_that_was_stopped_around_a_save_ends_bit_identical(
    call, written, whole_runs, configure, monkeypatch, assert_same_run
):
    """The file model.pt is written just before checkpoint.pt: a kill between the two leaves them an epoch apart."""
    settings = {"method": "icda", "epochs": 3, "selection": "validation_accuracy"}
    config, save, calls = configure("stopped", checkpoint_every=3, **settings), trainer.save_checkpoint, 0

    def failing_save(path, state):
        nonlocal calls
        calls += 1
        if calls < call or written:
            save(path, state)
        if calls == call:
            raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "save_checkpoint", failing_save)
    with pytest.raises(KeyboardInterrupt):
        train(config)
    monkeypatch.setattr(trainer, "save_checkpoint", save)
    train(config, resume=True)
    assert_same_run(whole_runs(**settings), config.folder())


class NoisyMethod(Method):
    """Draws from torch's own generator at each step, and keeps a count and a Python-side hook in buffers."""

    hooks: Tensor

    def __init__(self, setup):
        super().__init__()
        self.register_buffer("hooks", torch.zeros(2))

    def on_epoch_start(self, context):
        self.hooks[0] += torch.rand(())

    def on_epoch_end(self, context):
        self.hooks[1] += torch.rand(())

    def loss(self, output, batch, context):
        noise = torch.randn_like(output.logits)
        return torch.nn.functional.cross_entropy(output.logits + noise, batch.targets)


def test_random_numbers_that_a_method_draws_go_on_where_they_stopped(register_method, assert_resumes):
    assert_resumes(3, 4, 5, method=register_method("noisy", NoisyMethod))


def test_two_runs_of_one_configuration_are_bit_identical_and_another_seed_is_not(configure, assert_same_run):
    one, two, other = configure("one"), configure("two"), configure("other", seed=1)
    for config in (one, two, other):
        train(config)
    assert_same_run(one.folder(), two.folder())
    with pytest.raises(AssertionError):
        assert_same_run(one.folder(), other.folder())


def test_a_run_killed_before_its_first_checkpoint_starts_again(configure, train_for, assert_same_run):
    whole, stopped = configure("whole"), configure("stopped")
    train(whole)
    train_for(stopped, 3)
    assert not (stopped.folder() / "checkpoint.pt").exists()
    train(stopped)  # needs neither --resume nor --overwrite: nothing would be lost
    assert_same_run(whole.folder(), stopped.folder())
