"""What IRM, IB-IRM, V-REx and CORAL share, IRM standing for all: the jump of a weight, resuming, what is refused."""

import warnings
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from icda.data.task import Batch
from icda.methods import Setup, create_method
from icda.methods.domain_penalty import DomainPenalty
from icda.methods.irm import IRM
from icda.models import create_model
from icda.models.base import Output
from icda.training import train
from icda.training.checkpoint import load_checkpoint
from support import domain_setup, make_batch, make_context, make_grouped, short_run

SETUP = domain_setup()


@pytest.mark.parametrize(
    ("anneal_steps", "iteration", "progress", "weight"),
    [
        (0, 0, 0.0, 7.0),
        (1, 0, 0.0, 1.0),  # 1 is a step, not the whole of training
        (1, 1, 0.01, 7.0),
        (0.3, 29, 0.29, 1.0),
        (0.3, 30, 0.3, 7.0),
        (20, 19, 0.99, 1.0),
        (20, 20, 0.01, 7.0),
    ],
)
def test_the_weight_jumps_after_a_number_of_steps_or_a_share_of_training(anneal_steps, iteration, progress, weight):
    method = IRM(SETUP, penalty=7.0, anneal_steps=anneal_steps)
    assert method.penalty_weight(make_context(iteration=iteration, progress=progress)) == weight


@pytest.mark.parametrize(("reset", "counts"), [(True, [1, 2, 1, 2, 3]), (False, [1, 2, 3, 4, 5])])
def test_the_optimiser_starts_afresh_once_at_the_jump_if_it_shall(reset, counts):
    method = IRM(SETUP, anneal_steps=2, reset_optimizer=reset)
    model = create_model("mlp", 3, (5,), hidden=4).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    found = []
    batch = make_batch(1, size=8, classes=3)._replace(groups=torch.arange(8) % 4)
    for iteration in range(5):
        result = method.step(batch, make_context(model, optimizers=[optimizer], iteration=iteration))
        assert result.extra.keys() == {"invariance_penalty"}
        found.append(int(optimizer.state[model.head.weight]["step"]))
    assert found == counts


def configure(folder, **options):
    """Four large batches per epoch: twelve steps, and the weight jumps after six, in the middle of the second epoch."""
    settings = {"epochs": 3, "batch_size": 300, "optimizer": "adam", "learning_rate": 0.01, "checkpoint_every": 1}
    return short_run(folder, "irm", options=options, **settings)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    train(configure(folder, anneal_steps=0.5))
    checkpoint = load_checkpoint(folder / "checkpoint.pt")
    assert checkpoint["position"]["iteration"] == 12
    return checkpoint


def adam_steps(checkpoint):
    return {int(state["step"]) for state in checkpoint["optimizers"][0]["state"].values()}


@pytest.mark.parametrize("steps", [6, 7, 8], ids=["before the jump", "at the jump", "after the jump"])
def test_a_training_killed_around_the_jump_ends_bit_identical(steps, whole, tmp_path, train_for):
    config = configure(tmp_path, anneal_steps=0.5)
    train_for(config, steps)
    assert load_checkpoint(tmp_path / "checkpoint.pt")["position"]["iteration"] == steps - 1
    train(config, resume=True)
    resumed = load_checkpoint(tmp_path / "checkpoint.pt")
    for part in ("networks", "optimizers", "method"):
        torch.testing.assert_close(resumed[part], whole[part], rtol=0, atol=0)
    assert adam_steps(resumed) == adam_steps(whole) == {6}


def test_steps_and_the_share_they_are_give_the_same_training(whole, tmp_path):
    train(configure(tmp_path / "steps", anneal_steps=6))
    found = load_checkpoint(tmp_path / "steps" / "checkpoint.pt")
    torch.testing.assert_close(found["networks"], whole["networks"], rtol=0, atol=0)
    train(configure(tmp_path / "kept", anneal_steps=6, reset_optimizer=False))
    kept = load_checkpoint(tmp_path / "kept" / "checkpoint.pt")
    assert adam_steps(kept) == {12}
    weights = [state["networks"][0]["head.weight"] for state in (kept, whole)]
    assert not torch.equal(*weights)


def test_a_training_too_short_for_the_jump_is_warned_of():
    method = IRM(SETUP, anneal_steps=60)  # ten epochs of six batches: iterations 0..59
    with pytest.warns(UserWarning, match=r"anneal_steps is 60, and this training has 60 steps: .* weight of 100.0"):
        method.on_stage_start(make_context())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for steps in (59, 0.9, 0):
            IRM(SETUP, anneal_steps=steps).on_stage_start(make_context())


OFF = {
    "irm": {"penalty": 0.0, "anneal_steps": 0},
    "v_rex": {"penalty": 0.0, "anneal_steps": 0},
    "coral": {"gamma": 0.0},
}


@pytest.mark.parametrize(("name", "options"), OFF.items())
def test_no_penalty_is_the_mean_of_the_domains_cross_entropies_bit_for_bit(name, options):
    output, batch = make_grouped([0, 1, 2, 3, 0, 1, 0, 2, 2, 3, 0], seed=5)
    domains = [batch.groups % 2 == domain for domain in (0, 1)]
    losses = [F.cross_entropy(output.logits[rows], batch.targets[rows]) for rows in domains]
    found = create_method(name, SETUP, options).loss(output, batch, make_context())
    assert torch.equal(found, torch.stack(losses).mean())


def test_a_penalty_method_without_penalties_says_so():
    batch = Batch(torch.zeros(2, 4), torch.tensor([0, 1]), torch.tensor([0, 1]), torch.arange(2))
    with pytest.raises(TypeError, match="DomainPenalty does not define penalties"):
        DomainPenalty(SETUP).loss(Output(batch.inputs, torch.zeros(2, 3)), batch, make_context())


@pytest.mark.parametrize(("name", "option"), [("coral", "gamma"), ("ib_irm", "ib")])
def test_a_penalty_on_fixed_features_is_warned_of(name, option):
    def start(model, **options):
        network = create_model(model, 3, (5,))
        method = create_method(name, SETUP, options | ({"anneal_steps": 0} if name == "ib_irm" else {}))
        method.on_stage_start(make_context(network))

    with pytest.warns(UserWarning, match=rf"acts on features, and this network's are fixed: its penalty \({option}="):
        start("linear")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        start("linear", **{option: 0.0})
        start("mlp")


FEW = Setup(2, 4, torch.tensor([6, 4]), 1, 10, torch.tensor([4, 2, 1, 3]), group_domains=torch.tensor([0, 1, 0, 1]))


@pytest.mark.parametrize("name", ["irm", "ib_irm", "v_rex", "coral"])
@pytest.mark.parametrize("sampling", ["domain_balanced", "group_balanced", "uniform"])
def test_samples_are_drawn_as_asked(name, sampling):
    method = create_method(name, FEW, {"sampling": sampling})
    assert [stage.sampling for stage in method.stages(3)] == [sampling]


@pytest.mark.parametrize("name", ["irm", "ib_irm", "v_rex", "coral", "fish", "domain_mix", "lisa"])
def test_domains_without_samples_do_not_count(name):
    create_method(name, FEW)
    lonely = replace(FEW, group_counts=torch.tensor([6, 0, 4, 0]))
    with pytest.raises(ValueError, match="compares domains, and the training set has samples of 1"):
        create_method(name, lonely)
