"""A training forward pass that can be looked at again: same inputs, dropout masks, precision, and layers' outputs.

A forward-mode pass computes values and tangents. The values of the training pass are still there, because its backward
pass will need them, so `Reusing` gives convolutions, linear layers, BatchNorm and ReLU their old outputs and computes the
tangents alone: two products per layer in place of three, and BatchNorm's tangent by its own backward kernel. Everything
else, and whatever is no longer there or was changed in place, is left to torch's forward mode.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.autograd.forward_ad as forward_mode
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from icda.errors import InputTypeError

CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv3d)
Rule = Callable[..., "tuple[Tensor, Tensor | None] | None"]  # (output, ...) -> value and tangent, None: cannot say


class Call(NamedTuple):
    """One call of a layer: its output, if something still holds it, and the graph's node, which knows batch statistics."""

    function: Any
    output: weakref.ref[Tensor]
    version: int
    shape: torch.Size
    node: Any

    def value(self) -> Tensor | None:
        """The output as it was returned; None once it is gone or was changed in place."""
        output = self.output()
        return None if output is None or output._version != self.version else output.detach()


class Recording(TorchFunctionMode):
    """Remembers the calls of layers while it is active. Weakly: what the graph does not keep is not kept here either."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func in RULES:
            self.calls.append(Call(func, weakref.ref(output), output._version, output.shape, output.grad_fn))
        return output


class Following(TorchFunctionMode):
    """The same network again: the calls of its layers meet those of an earlier pass, one after the other.

    The two passes must be of one network on one input. Should they differ in their sequence of layers, as a compiled
    network's do, nothing more is reused.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__()
        self._calls = iter(calls)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        call = next(self._calls, None) if func in RULES else None
        if call is not None and call.function is not func:
            self._calls, call = iter(()), None
        output = None if call is None else self.output(call, args, named)
        return func(*args, **named) if output is None else output

    def output(self, call: Call, args: Any, named: Any) -> Tensor | None:
        """What the layer returns this time; None where it has to be computed."""


class Reusing(Following):
    """Within a dual level: with tangents, and with the outputs of the earlier pass as values."""

    def output(self, call: Call, args: Any, named: Any) -> Tensor | None:
        names, rule = RULES[call.function]
        found = rule(call, **{**dict(zip(names, args, strict=False)), **named})
        if found is None:
            return None
        value, tangent = found
        return value if tangent is None else forward_mode.make_dual(value, tangent.to(value.dtype))


class FixedSigns(Following):
    """At other parameters, with every ReLU open where it was open in the earlier pass.

    Where a unit opens or closes in between, the error of a difference falls with the square root of the step; with open
    units held it falls linearly.
    """

    def output(self, call: Call, args: Any, named: Any) -> Tensor | None:
        if call.function is not F.relu or (value := _relu_output(call)) is None:
            return None
        return torch.ops.aten.threshold_backward(args[0] if args else named["input"], value, 0)


def _convolution(
    call: Call, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, *rest: Any, **named: Any
) -> tuple[Tensor, Tensor | None] | None:
    convolve = call.function
    return _bilinear(call, input, weight, bias, lambda x, w, b: convolve(x, w, b, stride, padding, *rest, **named))


def _linear(call: Call, input: Any, weight: Any, bias: Any = None) -> tuple[Tensor, Tensor | None] | None:
    return _bilinear(call, input, weight, bias, F.linear)


def _bilinear(
    call: Call, input: Any, weight: Any, bias: Any, layer: Callable[[Tensor, Tensor, Tensor | None], Tensor]
) -> tuple[Tensor, Tensor | None] | None:
    """layer(x, w, b): linear in x and in (w, b)."""
    value = call.value()
    (x, to_x), (w, to_w), (_, to_b) = (_unpack(part) for part in (input, weight, bias))
    if value is None or (to_b is not None and to_w is None):
        return None
    tangent = None if to_x is None else layer(to_x, w, None)
    if to_w is not None:
        own = layer(x, to_w, to_b)
        tangent = own if tangent is None else tangent.add_(own)
    return value, tangent


def _relu(call: Call, input: Any, inplace: bool = False) -> tuple[Tensor, Tensor | None] | None:
    value = _relu_output(call)
    _, to_x = _unpack(input)
    if value is None or inplace:
        return None
    return value, None if to_x is None else torch.ops.aten.threshold_backward(to_x, value, 0)


def _relu_output(call: Call) -> Tensor | None:
    """Its backward pass keeps it, whoever else does."""
    value = call.value()
    if value is None and call.node is not None and call.node.name() == "ReluBackward0":
        value = call.node._saved_result.detach()
    return value


def _batch_norm(
    call: Call,
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor | None] | None:
    """With batch statistics the Jacobian from x to its standardised form is symmetric: its backward kernel serves here."""
    if not training or call.node is None or call.node.name() != "NativeBatchNormBackward0":
        return None
    (x, to_x), (w, to_w), (b, to_b) = (_unpack(part) for part in (input, weight, bias))
    mean, inverse = call.node._saved_result1, call.node._saved_result2
    if to_x is None or to_w is None or to_b is None or not x.dtype == w.dtype == mean.dtype:
        return None
    tangent = torch.ops.aten.native_batch_norm_backward(
        to_x, x, w, None, None, mean, inverse, True, eps, [True, False, False]
    )[0]
    shape = (1, -1, *(1,) * (x.dim() - 2))
    scale = to_w * inverse
    tangent.addcmul_(x, scale.view(shape)).add_((to_b - scale * mean).view(shape))
    value = call.value()
    if value is None:  # ReLU keeps its own output, not what it was given
        scale = w * inverse
        value = torch.addcmul((b - scale * mean).view(shape), x, scale.view(shape))
    return value, tangent


def _unpack(part: Tensor | None) -> tuple[Any, Tensor | None]:
    if part is None:
        return None, None
    dual = forward_mode.unpack_dual(part)
    return dual.primal, dual.tangent


_CONVOLUTION_NAMES = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_NORM_NAMES = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
RULES: dict[Any, tuple[tuple[str, ...], Rule]] = {
    **dict.fromkeys(CONVOLUTIONS, (_CONVOLUTION_NAMES, _convolution)),
    F.linear: (("input", "weight", "bias"), _linear),
    F.relu: (("input", "inplace"), _relu),
    F.batch_norm: (_NORM_NAMES, _batch_norm),
}


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
