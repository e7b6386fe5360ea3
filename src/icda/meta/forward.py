"""A training forward pass that can be looked at again: same inputs, same dropout masks, same layers' outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from icda.meta.reuse import Recording


class ModelOutput(Protocol):
    """What a model returns: the head's input and output."""

    @property
    def features(self) -> Tensor: ...

    @property
    def logits(self) -> Tensor: ...


@dataclass(frozen=True)
class Forward:
    """A training forward pass that the virtual and the real step share."""

    inputs: Any
    output: ModelOutput
    random_state: list[Tensor]  # before the pass, so that dropout draws the same masks when it is looked at again
    recording: Recording | None = None  # what layers returned, so that forward mode need not compute it again

    @classmethod
    def of(cls, network: nn.Module, inputs: Any, record: bool = False) -> Forward:
        """Run the network; with `record` its layers' outputs are remembered, which takes no memory of its own."""
        state = random_state()
        if not record:
            return cls(inputs, network(inputs), state)
        with Recording() as recording:
            output = network(inputs)
        return cls(inputs, output, state, recording)


def random_state() -> list[Tensor]:
    """The generators that dropout draws from: the CPU's, and those of all GPUs."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else ())]


@contextmanager
def replay(state: list[Tensor]) -> Iterator[None]:
    """Draw as from `state`, then go on as if nothing had been drawn."""
    now = random_state()
    _set_random_state(state)
    try:
        yield
    finally:
        _set_random_state(now)


def _set_random_state(state: list[Tensor]) -> None:
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state_all(state[1:])
