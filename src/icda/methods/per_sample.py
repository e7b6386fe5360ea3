"""What a method keeps beside parameters and buffers; rows for each training sample, read and written by a batch's index."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from icda.data.task import Batch
from icda.methods.base import Context
from icda.models.base import Output, evaluating
from icda.ranks import all_gather_rows, all_mean, all_reduce


class Keeps(nn.Module):
    """Saves what `saved` names beside parameters and buffers: rows for each sample, optimisers, plain values.

    A buffer must have the length it had when it was saved, and a trained model may be evaluated on data of another size:
    so rows are buffers that are not persistent. In the file an optimiser called NAME_optimizer is NAME.
    """

    saved: ClassVar[tuple[str, ...]] = ()

    def keep(self, name: str, values: Tensor) -> None:
        """Register a buffer of one row per sample."""
        self.register_buffer(name, values, persistent=False)

    def get_extra_state(self) -> dict[str, Any]:
        found = {name.removesuffix("_optimizer"): getattr(self, name) for name in self.saved}
        return {key: held.state_dict() if isinstance(held, Optimizer) else held for key, held in found.items()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for name in self.saved:
            held, key = getattr(self, name), name.removesuffix("_optimizer")
            if isinstance(held, Optimizer):
                held.load_state_dict(state[key])
            elif state.get(key) is not None:  # an earlier version may not have kept it
                setattr(self, name, state[key].to(held.device) if isinstance(held, Tensor) else state[key])


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


def class_sums(features: Tensor, targets: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Sums (C, A) of the features of each class, as `like` (C, A) has them, and their numbers (C, 1), over all ranks."""
    sums = like.new_zeros(len(like), features.shape[1] + 1)
    all_reduce(sums.index_add_(0, targets, torch.cat([features, torch.ones_like(features[:, :1])], 1).to(sums)))
    return sums[:, :-1], sums[:, -1:]


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
