"""State with a row for each training sample: kept with the checkpoint, read and written by a batch's index."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from icda.data.task import Batch
from icda.methods.base import Context
from icda.models.base import Output, evaluating
from icda.ranks import all_gather_rows, all_mean, all_reduce


class PerSample(nn.Module):
    """Saves the buffers named in `per_sample`, which are not persistent ones, and loads them at any length.

    A saved buffer must have the length it had, and a trained model may be evaluated on data of another size.
    """

    per_sample: ClassVar[tuple[str, ...]] = ()

    def keep(self, name: str, values: Tensor) -> None:
        """Register a buffer of one row per sample."""
        self.register_buffer(name, values, persistent=False)

    def get_extra_state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.per_sample}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for name in self.per_sample:
            if name in state:  # which an earlier version may not have kept
                setattr(self, name, state[name].to(getattr(self, name).device))


def rows(values: Tensor, batch: Batch, like: Tensor) -> Tensor:
    """The rows of a batch's samples, of the type and on the device of `like`."""
    return values[batch.index.to(values.device)].to(like)


def write_rows(values: Tensor, index: Tensor, new: Tensor) -> None:
    """Set the rows of the samples at `index`, with those of all ranks."""
    values[all_gather_rows(index.to(values.device))] = all_gather_rows(new.to(values))


@torch.no_grad()
def over_training_set(
    context: Context, like: Tensor, measure: Callable[[Output, Batch], Tensor]
) -> tuple[Tensor, Tensor]:
    """What `measure` says of each training sample, by the network in evaluation mode, and the labels (N,).

    Both are the same on all ranks. The answers have the shape, type and device of `like` (N, ...).
    """
    model, found = context.models[0], torch.zeros_like(like)
    targets = torch.zeros(len(like), dtype=torch.long, device=like.device)
    with evaluating(model):
        for batch in context.training_batches():
            found[batch.index] = measure(model(batch.inputs), batch).to(found)
            targets[batch.index] = batch.targets
    return all_mean(found), targets  # BatchNorm's running figures differ between ranks


def label_probability(output: Output, batch: Batch) -> Tensor:
    """p_y (N,) of a batch."""
    return output.logits.double().softmax(1).gather(1, batch.targets[:, None])[:, 0]


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """sum_i w_i v_i / sum_i w_i over the batch of all ranks, once the trainer has averaged over them.

    The weights carry no gradient. With one process it is what `cross_entropy(..., weight=...)` returns.

    >>> weighted_mean(torch.tensor([1.0, 4.0]), torch.tensor([3.0, 1.0]))
    tensor(1.7500)
    """
    total, count = all_reduce(torch.stack([weights.sum(), weights.new_tensor(float(len(weights)))]))
    return (weights * values).mean() * count / total
