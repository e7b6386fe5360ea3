"""The last linear layer, in any of the shapes people have it."""

from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from icda.errors import InputError, InputTypeError
from icda.statistics.checks import check_float

Head = nn.Module | tuple[Tensor, Tensor | None]


def head_parameters(head: Head) -> tuple[Tensor, Tensor | None]:
    """Weight (C, A) and bias (C,) or None of an nn.Linear, a 1x1 nn.Conv2d or a (weight, bias) pair.

    >>> weight, bias = head_parameters(nn.Conv2d(64, 10, kernel_size=1))
    >>> weight.shape, bias.shape
    (torch.Size([10, 64]), torch.Size([10]))
    """
    pair: Any = head
    if not isinstance(head, tuple | list):
        pair = getattr(head, "weight", None), getattr(head, "bias", None)
        if not isinstance(pair[0], Tensor):
            raise InputTypeError(f"head must be nn.Linear, a 1x1 Conv2d or (weight, bias), got {type(head).__name__}.")
    if len(pair) != 2:
        raise InputError(f"a head given as a tuple is (weight, bias), got {len(pair)} items.")
    weight, bias = map(_gathered, pair)
    if isinstance(weight, UninitializedParameter):
        raise InputError("the head is a lazy layer without a shape yet: run it on a batch once.")
    check_float(weight, "the head's weight", "a loss")
    if weight.dim() == 4 and weight.shape[2:] == (1, 1):
        weight = weight.flatten(1)
    if weight.dim() != 2:
        raise InputError(f"the head's weight must be (C, A) or (C, A, 1, 1), got {tuple(weight.shape)}.")
    return weight, bias


def _gathered(parameter: Any) -> Any:
    """A parameter that `fully_shard` has spread over processes as a whole; their gradients are averaged, as FSDP does."""
    if not hasattr(parameter, "full_tensor"):
        return parameter
    from torch.distributed.tensor import Partial

    return parameter.full_tensor(grad_placements=[Partial("avg")] * parameter.device_mesh.ndim)
