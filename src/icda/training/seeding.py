"""Seeds: one number in, every generator set."""

from __future__ import annotations

import random
from typing import NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor


class RandomState(TypedDict):
    """The states of torch's generators."""

    cpu: Tensor
    cuda: NotRequired[list[Tensor]]


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch. Data order and augmentation have generators of their own."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_state() -> RandomState:
    """torch's generators: all that a training step of ours draws from."""
    state: RandomState = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_random_state(state: RandomState) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
