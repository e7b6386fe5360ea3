"""Meta-ICDA for people with a training loop of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from icda.data.task import Batch
from icda.errors import InputError
from icda.losses.icda import ICDALoss
from icda.meta.lookahead import Mode
from icda.meta.strength_network import StrengthNetwork
from icda.methods.base import Context, Figures, Setup, StepResult
from icda.methods.meta_icda import MetaICDAMethod
from icda.models.base import FeatureClassifier
from icda.ranges import PositiveInt


class MetaICDA:
    """One call per step: look ahead on metadata, correct strengths and statistics, update the model.

    `model` returns features and logits and has a linear `head` (`icda.models.from_torch` and `from_huggingface` make one
    of almost any network); `loss` holds the class statistics; `optimizer` is the model's. `step` does forward, look-ahead,
    backward and optimiser step, and returns the loss. Call `end_epoch` after each epoch: the characteristics compare a
    sample with its class in the epoch before. The keyword arguments are those of the method `meta_icda`; with `memory`
    a batch is (inputs, targets, index), the numbers (N,) of its samples in the training data.

    >>> from icda.models import create_model
    >>> model = create_model("mlp", num_classes=3, input_shape=(8,))
    >>> loss = ICDALoss(3, model.feature_dim, class_counts=torch.tensor([30, 20, 10]))
    >>> meta = MetaICDA(model, loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    >>> batch, clean = [(torch.randn(6, 8), torch.tensor([0, 1, 2, 0, 1, 2])) for _ in range(2)]
    >>> meta.step(batch, clean, progress=0.5).shape
    torch.Size([])
    """

    def __init__(
        self,
        model: FeatureClassifier,
        loss: ICDALoss,
        strength_network: StrengthNetwork | None = None,
        *,
        optimizer: torch.optim.Optimizer,
        lookahead: Mode = "full",
        every: PositiveInt = 1,
        **options: Any,
    ) -> None:
        if "meta_batch_size" in options:
            raise InputError("MetaICDA looks at the metadata that step() is given: give it a batch of that size.")
        counts = torch.ones(loss.num_classes) if loss.class_counts is None else loss.class_counts
        setup = Setup(loss.num_classes, loss.feature_dim, counts, epochs=1, num_samples=int(counts.sum()))
        self.method = MetaICDAMethod(
            setup, criterion=loss, strength_network=strength_network, lookahead=lookahead, every=every, **options
        )
        self._num_samples = setup.num_samples
        self.method.given = torch.zeros(0, 2)  # samples have no numbers here unless the caller gives them
        self.method.to(next(model.parameters()).device)
        self.context = Context(
            networks=[model],
            models=[model],
            optimizers=[optimizer],
            apply=self._apply,
            training_batches=lambda: iter(()),
        )

    def step(self, batch: Sequence[Any], meta_batch: Sequence[Any], progress: float) -> Tensor:
        """Train on (inputs, targets) with (inputs, targets) of clean metadata; returns the detached loss."""
        return self.detailed_step(batch, meta_batch, progress).loss

    def detailed_step(self, batch: Sequence[Any], meta_batch: Sequence[Any], progress: float) -> StepResult:
        """As `step`, with the logits and the metadata loss."""
        if not 0 <= progress <= 1:
            raise InputError(f"progress is t/T in [0, 1], got {progress}.")
        if self.method.history is not None:
            self._check_numbers(batch)
        self.context.progress = progress
        self.context.next_metadata = lambda: _as_batch(meta_batch)
        self.method.train()
        result = self.method.step(_as_batch(batch), self.context)
        self.context.iteration += 1
        return result

    def end_epoch(self) -> Figures:
        """Close an epoch; returns the mean strengths given out, overall and by class."""
        self.method.on_epoch_end(self.context)
        return self.method.epoch_figures()

    def state_dict(self) -> dict[str, Any]:
        """Strength network, its optimiser, statistics, characteristics; the model and its optimiser are yours to save."""
        return {"method": self.method.state_dict(), "iteration": self.context.iteration}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.method.load_state_dict(state["method"])
        self.context.iteration = state["iteration"]

    def _check_numbers(self, batch: Sequence[Any]) -> None:
        if len(batch) < 3:
            raise InputError(
                "memory=True remembers samples by their numbers: give a batch as (inputs, targets, index), or leave memory "
                "out."
            )
        count, index = self._num_samples, torch.as_tensor(batch[2])
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < count:
            raise InputError(
                f"index holds sample numbers from 0 to {count - 1}, as many as the class counts of the loss say; got "
                f"{int(index.min())} to {int(index.max())}."
            )

    def _apply(self, loss: Tensor) -> None:
        (optimizer,) = self.context.optimizers
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _as_batch(parts: Sequence[Any]) -> Batch:
    inputs, targets = parts[0], parts[1]
    return Batch(inputs, targets, None, torch.as_tensor(parts[2]) if len(parts) > 2 else torch.arange(len(targets)))
