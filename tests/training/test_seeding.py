import random

import numpy as np
import pytest
import torch

from icda.training.seeding import random_state, restore_random_state, seed_everything


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


@pytest.mark.parametrize("seed", [0, 7, 2**32 + 5])
def test_one_seed_sets_every_generator(seed: int) -> None:
    seed_everything(seed)
    first = draws()
    draws()
    seed_everything(seed)
    assert draws() == first


def test_other_seeds_give_other_numbers() -> None:
    seed_everything(0)
    first = draws()
    seed_everything(1)
    assert all(one != other for one, other in zip(first, draws(), strict=True))


def test_a_restored_state_goes_on_where_it_was_taken() -> None:
    torch.rand(5)
    state = random_state()
    expected = torch.randn(9)
    torch.manual_seed(123)
    restore_random_state(state)
    assert torch.equal(torch.randn(9), expected)
