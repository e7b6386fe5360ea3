"""Features, logits and head of any torch model, caught while it runs."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from icda.errors import InputError, InputTypeError, OperationError
from icda.models.adapters import is_linear, named_layer, unwrap

# The head is among the last layers called; holding every layer's input until the end would cost memory.
_REMEMBERED_CALLS = 8


class _Call(NamedTuple):
    layer: nn.Module
    features: Tensor
    logits: Tensor


class FeatureTap:
    """The input (N, A) and output (N, C) of a model's last linear layer, as they were in its latest forward.

    The head is the last nn.Linear or 1x1 nn.Conv2d called whose output feeds the model's result, the first where there are
    several (logits, auxiliary logits); it is found in the first forward. The model itself is not changed. Of a decoder that
    classifies every token and keeps one, it is that token's. What was caught is let go at the next forward, by `clear()`
    and by `remove()`, which also takes the hooks off, as leaving a `with` block does.

    Args:
        model: Any network, also compiled or in DistributedDataParallel.
        head: The layer, or its path, where it is another one.

    >>> model, targets = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3)), torch.arange(6) % 3
    >>> tap = FeatureTap(model)
    >>> logits = model(torch.randn(6, 3, 4))
    >>> tap.features.shape, tap.logits is logits, tap.head is model[3]
    (torch.Size([6, 8]), True, True)
    """

    def __init__(self, model: nn.Module, head: str | nn.Module | None = None) -> None:
        self.model = unwrap(model)
        self._head = None if head is None else _given_head(self.model, head)
        layers = [layer for layer in self.model.modules() if is_linear(layer) and self._head in (None, layer)]
        if not layers:
            raise InputError(
                f"FeatureTap finds no linear layer in {type(self.model).__name__}: expected an nn.Linear or a 1x1 "
                "nn.Conv2d as its head. Return the features from forward and call the loss with (weight, bias)."
            )
        self._calls: deque[_Call] = deque(maxlen=_REMEMBERED_CALLS)
        self._recording = False
        self.clear()
        start = self.model.register_forward_pre_hook(_Hook(self, "_start"))
        self._root_handles = [start, self.model.register_forward_hook(_Hook(self, "_finish"))]
        self._layer_handles = [self._listen(layer) for layer in layers]

    @property
    def features(self) -> Tensor:
        """The head's input (N, A), with its gradient graph."""
        return self._caught().features

    @property
    def logits(self) -> Tensor:
        """The head's output (N, C)."""
        return self._caught().logits

    @property
    def head(self) -> nn.Module:
        if self._head is None:
            raise OperationError(
                f"FeatureTap does not know the head of {type(self.model).__name__} yet: "
                f'{self._problem}. Name it to know it at once: FeatureTap(model, head="path.to.layer").'
            )
        return self._head

    @property
    def num_classes(self) -> int:
        return int(_weight(self.head).shape[0])

    @property
    def feature_dim(self) -> int:
        return int(_weight(self.head).shape[1])

    def clear(self) -> None:
        """Let go of the tensors that were caught."""
        self._calls.clear()
        self._captured: _Call | None = None
        self._problem = "no forward since it was made or cleared; call model(inputs) first"

    def remove(self) -> None:
        """Take the hooks off the model."""
        self.clear()
        for handle in (*self._root_handles, *self._layer_handles):
            handle.remove()
        self._problem = "it was removed from the model; make a new one"

    def __enter__(self) -> FeatureTap:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __getstate__(self) -> dict[str, Any]:
        # Tensors inside a gradient graph cannot be copied, and a copied model has made no forward.
        return {**self.__dict__, "_calls": deque(maxlen=_REMEMBERED_CALLS), "_captured": None, "_recording": False}

    def _caught(self) -> _Call:
        if self._captured is None:
            raise OperationError(f"FeatureTap has no features of {type(self.model).__name__}: {self._problem}.")
        return self._captured

    def _listen(self, layer: nn.Module) -> RemovableHandle:
        # Before `_finish`, for the model may be nothing but its head.
        return layer.register_forward_hook(_Hook(self, "_record"), prepend=True, with_kwargs=True)

    def _start(self, model: nn.Module, arguments: tuple[Any, ...]) -> None:
        self.clear()
        self._recording = True

    def _record(self, layer: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> None:
        # Outside the model's forward a layer runs again in gradient checkpointing's backward.
        if self._recording:
            features = arguments[0] if arguments else named["input"]
            self._calls.append(_Call(layer, features, output))

    def _finish(self, model: nn.Module, arguments: tuple[Any, ...], result: Any) -> None:
        calls, results = list(self._calls), list(_tensors(result))
        self._calls.clear()
        self._recording = False
        try:
            if self._head is None:
                self._head = _last_head(self.model, calls, results)
                if not torch.compiler.is_compiling():  # hooks cannot be taken off inside of a graph, and do no harm
                    for handle in self._layer_handles:
                        handle.remove()
                    self._layer_handles = [self._listen(self._head)]
            self._captured = _one_call([call for call in calls if call.layer is self._head], results)
        except _UnusableCallError as error:
            self._problem = str(error)


class _Hook:
    """A method of a tap as a hook that neither keeps the tap alive nor stands in the way of copying the model."""

    def __init__(self, tap: FeatureTap | None, method: str) -> None:
        self.tap = (lambda: None) if tap is None else weakref.ref(tap)
        self.method = method

    def __call__(self, *arguments: Any) -> None:
        tap = self.tap()
        if tap is not None:
            getattr(tap, self.method)(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hook, (self.tap(), self.method)


class _UnusableCallError(Exception): ...


def _given_head(model: nn.Module, head: str | nn.Module) -> nn.Module:
    if isinstance(head, str):
        return named_layer(model, head)
    if not is_linear(head):
        raise InputTypeError(f"head must be an nn.Linear, a 1x1 nn.Conv2d or a name, got {type(head).__name__}.")
    if not any(module is head for module in model.modules()):
        raise InputError(f"the given head {head} is no part of {type(model).__name__}: take it from the same model.")
    return head


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping):
        yield from _tensors(tuple(result.values()))
    elif isinstance(result, (tuple, list)):
        for item in result:
            yield from _tensors(item)


def _weight(layer: nn.Module) -> Tensor:
    assert isinstance(layer.weight, Tensor)
    return layer.weight


def _last_head(model: nn.Module, calls: list[_Call], results: list[Tensor]) -> nn.Module:
    """The layer behind the first result that one is behind: of logits and auxiliary ones, the logits come first."""
    for result in (each for each in results if each.dim() > 1):
        rows = result.shape[1], result.shape[-1]
        fitting = [call for call in reversed(calls) if _weight(call.layer).shape[0] in rows]
        for call in fitting:
            if call.logits is result:  # all that can be known inside of a compiled graph
                return call.layer
        nodes = _graph(result) if fitting else ()
        for call in fitting:
            if call.logits.grad_fn in nodes or _same(call.logits, result):
                return call.layer
    names = {layer: name for name, layer in model.named_modules()}
    raise _UnusableCallError(
        "no linear layer was seen to make its result, expected logits (N, C) among what forward returns (last linear "
        f"layers called: {', '.join(names[call.layer] for call in calls) or 'none'}). "
        'Name it: FeatureTap(model, head="path.to.layer")'
    )


def _graph(result: Tensor) -> set[Any]:
    """All nodes of the gradient graph behind a result."""
    seen: set[Any] = set()
    waiting = [] if result.grad_fn is None else [result.grad_fn]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting.extend(parent for parent, _ in node.next_functions if parent is not None)
    return seen


def _same(logits: Tensor, result: Tensor) -> bool:
    """Whether a result is a layer's output, up to shape and precision: what can be known without a graph."""
    if logits.numel() == result.numel() and len(logits) == len(result):
        return torch.equal(logits.to(result.dtype).flatten(), result.flatten())
    return _kept_token(logits, result) is not None


def _kept_token(logits: Tensor, result: Tensor) -> Tensor | None:
    """The position (N,) whose logits, of (N, T, C), are the result (N, C); None when some row has none."""
    if logits.dim() != 3 or result.shape != (logits.shape[0], logits.shape[2]):
        return None
    match = (logits.to(result.dtype) == result[:, None]).all(dim=-1)
    return match.shape[1] - 1 - match.flip(1).int().argmax(1) if match.any(dim=1).all() else None


def _one_call(calls: list[_Call], results: list[Tensor]) -> _Call:
    """The single call of the head, its tensors as (N, A) and (N, C)."""
    if len(calls) != 1:
        times = f"{len(calls)} times" if calls else "not"
        raise _UnusableCallError(f"its head was {times} called in the latest forward, expected once")
    layer, features, logits = calls[0]
    if features.dim() == 4 and features.shape[2:] == (1, 1) and isinstance(layer, nn.Conv2d):
        return _Call(layer, features.flatten(1), logits.flatten(1))
    if features.dim() == 3:
        kept = next((place for result in results if (place := _kept_token(logits, result)) is not None), None)
        if kept is not None:
            rows = torch.arange(len(kept), device=kept.device)
            return _Call(layer, features[rows, kept], logits[rows, kept])
    if features.dim() != 2:
        raise _UnusableCallError(
            f"its head read a tensor of shape {tuple(features.shape)}, expected (N, {_weight(layer).shape[1]}); "
            "pool the features before the head, or see icda.models.from_torch"
        )
    return calls[0]
