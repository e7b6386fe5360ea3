"""Meta-ICDA for people with a training loop of their own."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from icda.data.task import Batch
from icda.errors import InputError, InputTypeError
from icda.losses.icda import ICDALoss
from icda.meta.lookahead import Mode
from icda.meta.strength_network import StrengthNetwork
from icda.methods.base import Context, Figures, Setup, StepResult
from icda.methods.meta_icda import MetaICDAMethod
from icda.models.adapters import unwrap
from icda.ranges import PositiveInt
from icda.ranks import world_size
from icda.settings import check_names, option_kinds


class MetaICDA:
    """One call per batch: look ahead on metadata, correct strengths and statistics, give the loss to train on.

    `loss` leaves backward and optimiser step to your loop (accumulation, clipping, a gradient scaler); `step` does it all.
    Both work under autocast, in `DistributedDataParallel`, and with a compiled model. Call `end_epoch` after each epoch:
    the characteristics compare a sample with its class in the epoch before.

    Args:
        model: Returns features (N, A) and logits (N, C) and has a linear `head`: `icda.models.from_torch` and
            `from_huggingface` make one of almost any network.
        loss: Holds the class statistics, and the options of the ICDA loss.
        strength_network: What turns characteristics into strengths; by default a new one.
        optimizer: The model's; its learning rate is that of the virtual step.
        lookahead: "full" is exact, "head" moves the head alone, "difference" takes one more forward pass.
        every: Look ahead at each k-th call only.
        **options: Those of the method `meta_icda`. With `memory` a batch is (inputs, targets, index), where index (N,)
            numbers the samples of the training data.

    >>> from icda.models import create_model
    >>> model = create_model("mlp", num_classes=3, input_shape=(8,))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> meta = MetaICDA(model, ICDALoss(3, model.feature_dim, class_counts=[30, 20, 10]), optimizer=optimizer)
    >>> batch, clean = [(torch.randn(6, 8), torch.tensor([0, 1, 2, 0, 1, 2])) for _ in range(2)]
    >>> meta.loss(batch, clean, progress=0.5).backward()
    >>> optimizer.step()
    """

    def __init__(
        self,
        model: nn.Module,
        loss: ICDALoss,
        strength_network: StrengthNetwork | None = None,
        *,
        optimizer: torch.optim.Optimizer,
        lookahead: Mode = "full",
        every: PositiveInt = 1,
        **options: Any,
    ) -> None:
        _check_options(options)
        counts = torch.ones(loss.num_classes) if loss.class_counts is None else loss.class_counts
        setup = Setup(loss.num_classes, loss.feature_dim, counts, epochs=1, num_samples=int(counts.sum()))
        bare: Any = unwrap(model)
        _check_model(bare)
        self.method = MetaICDAMethod(
            setup, criterion=loss, strength_network=strength_network, lookahead=lookahead, every=every, **options
        )
        self._num_samples = setup.num_samples
        self.method.given = torch.zeros(0, 2)  # samples have no numbers here unless the caller gives them
        self.method.to(next(bare.parameters()).device)
        self.context = Context(
            networks=[model],
            models=[bare],
            optimizers=[optimizer],
            apply=lambda loss: None,  # set by each call
            training_batches=lambda: iter(()),
        )

    def loss(self, batch: Sequence[Any], meta_batch: Sequence[Any], progress: float) -> Tensor:
        """The loss of a batch, after the look-ahead; backward and the optimiser's step are yours.

        Args:
            batch: Inputs, and targets (N,).
            meta_batch: Inputs and targets (M,) of clean metadata.
            progress: How far training has come, t/T in [0, 1].

        Returns:
            The mean loss (), with its graph. Gradients of the model are not touched.
        """
        return self._run(batch, meta_batch, progress)[0]

    def step(self, batch: Sequence[Any], meta_batch: Sequence[Any], progress: float) -> Tensor:
        """As `loss`, and then `zero_grad`, backward and the optimiser's step; returns the detached loss ()."""
        return self.detailed_step(batch, meta_batch, progress).loss

    def detailed_step(self, batch: Sequence[Any], meta_batch: Sequence[Any], progress: float) -> StepResult:
        """As `step`, with the logits and the metadata loss."""
        loss, result = self._run(batch, meta_batch, progress)
        (optimizer,) = self.context.optimizers
        optimizer.zero_grad()
        with torch.autocast(loss.device.type, enabled=False):  # backward has the types of forward already
            loss.backward()
        optimizer.step()
        torch.clear_autocast_cache()  # inside of autocast it would go on with the weights of before
        return result

    def _run(self, batch: Sequence[Any], meta_batch: Sequence[Any], progress: float) -> tuple[Tensor, StepResult]:
        """The method's step without its end: the loss, which it hands to `apply`, and its figures."""
        if not 0 <= progress <= 1:
            raise InputError(f"progress is t/T in [0, 1], got {progress}.")
        if self.method.history is not None:
            self._check_numbers(batch)
        self._check_surroundings()
        losses: list[Tensor] = []
        self.context.progress, self.context.apply = progress, losses.append
        self.context.next_metadata = lambda: _as_batch(meta_batch)
        self.method.train()
        result = self.method.step(_as_batch(batch), self.context)
        self.context.iteration += 1
        return losses[0], result

    def _check_surroundings(self) -> None:
        device = self.context.head_weight.device.type
        if self.method.lookahead == "difference" and torch.is_autocast_enabled(device):
            raise InputError(
                'lookahead="difference" compares two forward passes, whose difference half precision cannot hold: call it '
                'outside of autocast, or take lookahead="full".'
            )
        if world_size() > 1 and not isinstance(self.context.network, DistributedDataParallel):
            raise InputError(
                f"{world_size()} processes train together, and the model given to MetaICDA is not in "
                "DistributedDataParallel: their weights would drift apart. Wrap it, MetaICDA(DDP(model), ...)."
            )

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


def _check_options(options: dict[str, Any]) -> None:
    if "meta_batch_size" in options:
        raise InputError("MetaICDA looks at the metadata that it is given in a call: give it a batch of that size.")
    if "held_out" in options:
        raise InputError("held_out is the folder of a run on the same samples, which `icda train` reads: leave it out.")
    loss_options = option_kinds(ICDALoss)
    for name in options:
        if name in loss_options:
            raise InputError(f"{name} is an option of the loss: set it there, ICDALoss(..., {name}=...).")
    known = [name for name in option_kinds(MetaICDAMethod) if name not in loss_options]
    check_names(options, known, "MetaICDA", "option")


def _check_model(model: Any) -> None:
    """Refuse a model without a plain linear head, or one whose parameters are spread over devices."""
    weight = getattr(getattr(model, "head", None), "weight", None)
    if not isinstance(weight, Tensor) or not isinstance(getattr(model, "head_weight", None), Tensor):
        raise InputTypeError(
            f"MetaICDA needs a model that returns features and logits and has a linear head, got {type(model).__name__}: "
            "icda.models.from_torch(model) or from_huggingface(model) makes one of yours."
        )
    if any(hasattr(parameter, "device_mesh") for parameter in model.parameters()):
        raise InputTypeError("MetaICDA moves whole parameters, and those of this model are sharded (FSDP): use DDP.")


def _as_batch(parts: Sequence[Any]) -> Batch:
    if not isinstance(parts, tuple | list) or len(parts) < 2:
        raise InputTypeError(
            f"MetaICDA expects a batch as (inputs, targets), with sample numbers third if there are any, got a "
            f"{type(parts).__name__}: of a Hugging Face batch its inputs as a dict, and its labels."
        )
    inputs, targets = parts[0], parts[1]
    return Batch(inputs, targets, None, torch.as_tensor(parts[2]) if len(parts) > 2 else torch.arange(len(targets)))
