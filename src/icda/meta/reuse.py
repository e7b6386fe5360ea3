"""Forward mode without computing the pass again: the outputs of layers are those of the training pass.

A forward-mode pass computes values and tangents. The values of the training pass are still there, because its backward
pass will need them, so `Reusing` gives convolutions, linear layers, BatchNorm and ReLU their old outputs and computes the
tangents alone: two products per layer in place of three, and BatchNorm's tangent by its own backward kernel. Everything
else, and whatever is no longer there or was changed in place, is left to torch's forward mode.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.autograd.forward_ad as forward_mode
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

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

    A difference of two passes errs most where a unit opens or closes in between: its error falls with the square root of
    the step. With open units held it falls linearly, and what remains is the network's curvature.
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
