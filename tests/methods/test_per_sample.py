"""State with a row for each training sample."""

from dataclasses import replace

import pytest
import torch

from icda.methods import METHODS, Setup, create_method
from icda.methods.create import method_class
from icda.methods.per_sample import Keeps, label_probability, over_training_set, write_rows
from support import make_context, make_network

SETUP = Setup(3, 5, torch.tensor([8, 8, 8]), epochs=10, num_samples=24)
INPUTS, TARGETS = torch.randn(24, 4, generator=torch.Generator().manual_seed(1)), torch.arange(24) % 3
NO_ROWS = {"optimizer", "generator_optimizer", "discriminator_optimizer", "snapshot", "agreement"}
KEEPERS = [name for name in METHODS if issubclass(kind := method_class(name), Keeps) and {*kind.saved} - NO_ROWS]


@pytest.mark.parametrize("name", KEEPERS)
def test_rows_of_samples_are_state_whatever_the_size_of_the_data(name):
    """A model that is evaluated beside data of another size has as many rows as it was trained with."""
    method = create_method(name, SETUP)
    rows = sorted({*method.saved} - NO_ROWS)
    for kept in rows:
        values = getattr(method, kept)
        setattr(method, kept, torch.rand(values.shape).mul(9).to(values.dtype))
    for setup in (SETUP, replace(SETUP, num_samples=3)):
        restored = create_method(name, setup)
        restored.load_state_dict(method.state_dict())
        for kept in rows:
            assert torch.equal(getattr(restored, kept), getattr(method, kept))


def test_a_checkpoint_without_the_optimiser_is_refused():
    state = create_method("mentornet", SETUP).state_dict()
    (place,) = (name for name in state if name.endswith("_extra_state") and "optimizer" in state[name])
    del state[place]["optimizer"]
    with pytest.raises(KeyError, match="optimizer"):
        create_method("mentornet", SETUP).load_state_dict(state)


def written_on_rank(rank):
    values = torch.zeros(4)
    write_rows(values, torch.tensor([rank, rank + 2]), torch.tensor([1.0, 2.0]) + rank)
    return values


def test_ranks_write_the_rows_of_all(run_on_ranks):
    for values in run_on_ranks(written_on_rank):
        assert values.tolist() == [1, 2, 2, 3]


def test_a_pass_over_the_training_set_is_in_evaluation_mode_and_leaves_the_network_as_it_was():
    model = make_network()
    model.train()
    model.encoder[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    context = make_context(model, data=(INPUTS, TARGETS))
    found, targets = over_training_set(context, torch.zeros(24), label_probability)
    assert [module.training for module in (model, model.encoder[1], model.encoder[2])] == [True, False, True]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        expected = [float(model.eval()(INPUTS[[i]]).logits[0].softmax(0)[TARGETS[i]]) for i in range(24)]
    torch.testing.assert_close(found, torch.tensor(expected))
    assert torch.equal(targets, TARGETS)
