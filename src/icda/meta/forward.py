"""A training forward pass that can be looked at again: same inputs, dropout masks, precision, and layers' outputs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from icda.errors import InputTypeError
from icda.meta.reuse import Recording


class ModelOutput(NamedTuple):
    """The head's input (N, A) and output (N, C), in single precision or better."""

    features: Tensor
    logits: Tensor


@dataclass(frozen=True)
class Forward:
    """A training forward pass that the virtual and the real step share."""

    inputs: Any
    output: ModelOutput
    random_state: list[Tensor]  # before the pass, so that dropout draws the same masks when it is looked at again
    recording: Recording | None = None  # what layers returned, so that forward mode need not compute it again
    autocast: torch.dtype | None = None  # what the pass ran in, where autocast was on around it

    @classmethod
    def of(cls, network: nn.Module, inputs: Any, record: bool = False) -> Forward:
        """Run the network; with `record` its layers' outputs are remembered, which takes no memory of its own.

        What is recorded runs uncompiled: a compiled network hides its layers, and draws other dropout masks.
        """
        state = random_state()
        if not record:
            output, recording = network(inputs), None
        else:
            with _uncompiled(), Recording() as recording:
                output = network(inputs)
        output = _widened(output)
        kind = output.logits.device.type
        autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        return cls(inputs, output, state, recording, autocast)

    def again(self, model: nn.Module, parameters: dict[str, Tensor], inputs: Any) -> ModelOutput:
        """A pass of the bare model with other parameters, in the precision of this one; its buffers stay as they are."""
        kind, precision = self.output.logits.device.type, self.autocast
        # A functional call with the real buffers would move BatchNorm's running statistics.
        buffers = {name: value.clone() for name, value in model.named_buffers()}
        with torch.autocast(kind, precision, enabled=precision is not None), _uncompiled():
            return _widened(functional_call(model, (parameters, buffers), (inputs,)))


def _uncompiled() -> AbstractContextManager[None]:
    """Inside, what was compiled runs as if it were not; where nothing was, torch's compiler need not be loaded for it."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def _widened(output: Any) -> ModelOutput:
    features, logits = getattr(output, "features", None), getattr(output, "logits", None)
    if not isinstance(features, Tensor) or not isinstance(logits, Tensor):
        raise InputTypeError(
            f"the model returned a {type(output).__name__}, and a look-ahead needs its features and logits: make a model "
            "that returns both with icda.models.from_torch(model), or from_huggingface(model)."
        )
    half = (torch.float16, torch.bfloat16)
    return ModelOutput(*(part.float() if part.dtype in half else part for part in (features, logits)))


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
