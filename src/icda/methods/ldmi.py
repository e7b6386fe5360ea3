"""L_DMI: cross entropy first, then the determinant of what labels and answers share."""

import math
import warnings

import torch
from torch import Tensor
from torch.nn import functional as F

from icda.errors import InputError
from icda.methods.base import METHODS, Batch, Context, Method, Setup, Stage, StepResult, checked
from icda.ranges import OpenShare, Positive
from icda.ranks import all_reduce

FEW = 10  # samples of a class in a batch
FLOOR = 1e-3  # added to the determinant, as published
PUBLISHED_RATE, PUBLISHED_STEPS, PUBLISHED_BATCH = 1e-6, 39_000, 128  # of the second stage: 100 epochs of CIFAR-10


def determinant_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """-log(|det(Y^T P)| + 1e-3) of a batch, Y (N, C) one-hot labels and P (N, C) softmax.

    Labels corrupted by a fixed transition T move it by -log|det T|, a constant. A batch that lacks a class has determinant
    zero and no gradient. It is taken in logarithms, for N/C to the power of C overflows.
    """
    probabilities = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(1)
    joint = F.one_hot(targets, logits.shape[1]).to(probabilities).T @ probabilities
    size = torch.linalg.slogdet(joint).logabsdet
    if not torch.isfinite(size):  # singular: what is left is the floor, and slogdet's gradient would be infinite
        return probabilities.sum() * 0 - math.log(FLOOR)
    return -torch.logaddexp(size, size.new_tensor(math.log(FLOOR)))


@METHODS.register("ldmi", "l_dmi")
class LDMI(Method):
    """Cross entropy first, then a determinant-based loss that class-dependent label noise does not change.

    The second loss is -log|det(Y^T P)|, with Y the one-hot labels and P the softmax of a batch. It can only refine a
    network that has learned the classes: `first_stage` is the share of epochs spent on cross entropy, with a schedule of
    its own. Then optimiser and schedule start again from `second_rate`; if it is not given, rate times steps is as
    published, 1e-6 times 39,000. Only full batches are learned from in the second stage; a batch needs many samples of
    every class.

    Reference: Xu et al., "L_DMI: a novel information-theoretic loss function", NeurIPS 2019.
    """

    @checked
    def __init__(self, setup: Setup, *, first_stage: OpenShare = 0.5, second_rate: Positive | None = None) -> None:
        super().__init__()
        if setup.batch_size is not None and setup.batch_size < setup.num_classes:
            raise InputError(
                f"LDMI needs every class in a batch, and many samples of each: a batch of {setup.batch_size} cannot hold "
                f"{setup.num_classes} classes. Raise --batch-size to several times the number of classes."
            )
        if setup.batch_size is not None and setup.batch_size < FEW * setup.num_classes:
            warnings.warn(
                f"LDMI: a batch of {setup.batch_size} has fewer than {FEW} samples of each of {setup.num_classes} classes. "
                "Its determinant is often near zero, where the gradient is huge, or zero, where there is none: raise "
                "--batch-size, or at least set --clip-norm.",
                stacklevel=2,
            )
        self.first_stage, self.second_rate = first_stage, second_rate
        self.full_batch = setup.batch_size or 0
        self.steps_an_epoch = max(1, setup.num_samples // (setup.batch_size or PUBLISHED_BATCH))

    def stages(self, epochs: int) -> list[Stage]:
        first = min(max(1, round(epochs * self.first_stage)), epochs)
        stages = [Stage(first, "cross_entropy", restart=True)]
        if rest := epochs - first:
            rate = self.second_rate or PUBLISHED_RATE * PUBLISHED_STEPS / (rest * self.steps_an_epoch)
            stages.append(Stage(rest, "determinant", restart=True, learning_rate=rate, step=self.determinant_step))
        return stages

    def determinant_step(self, batch: Batch, context: Context) -> StepResult:
        # Whether the ranks together have a full batch; they must not disagree about it.
        learns = int(all_reduce(torch.tensor(batch.num_samples, device=batch.targets.device))) >= self.full_batch
        with torch.set_grad_enabled(learns):  # a forward pass that no backward follows would stop DDP
            output = context.network(batch.inputs)
            loss = determinant_loss(output.logits, batch.targets)
        if learns:
            context.apply(loss)
        return StepResult(loss.detach(), output.logits.detach())
