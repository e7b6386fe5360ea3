"""Losses of icda in a LightningModule of your own: one loss, one callback."""

import math
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from icda.bf16 import require_bf16
from icda.errors import InputError, InputTypeError, OperationError
from icda.extras import require
from icda.functional.confusion import count_confusions
from icda.integrations.feature_tap import FeatureTap
from icda.losses import AdjustedLoss
from icda.metrics.figures import per_class_accuracy, worst_known
from icda.ranks import all_reduce

_lightning: Any = require("lightning.pytorch", "lightning", "Lightning modules")


class TappedLoss(nn.Module):
    """A loss that asks for nothing but the targets: features, logits and head come from a tap on the model.

    In training it is `loss` at `progress`, which `RobustCallback` sets; in evaluation it reports the plain cross entropy,
    which does not change with progress. As an attribute of your LightningModule it is moved and saved with it, statistics
    included.

    Args:
        model: The network that the module calls.
        loss: What it is trained with.
        head: The last linear layer or its path, where it is not found.

    >>> import torch
    >>> from icda import ICDALoss
    >>> model = nn.Linear(4, 2)
    >>> criterion = TappedLoss(model, ICDALoss(num_classes=2, feature_dim=4))
    >>> logits, criterion.progress = model(torch.randn(6, 4)), 0.3
    >>> criterion(torch.arange(6) % 2).backward()
    """

    def __init__(self, model: nn.Module, loss: AdjustedLoss, head: str | nn.Module | None = None) -> None:
        super().__init__()
        if not isinstance(loss, AdjustedLoss):
            raise InputTypeError(f"TappedLoss expects a loss of icda such as ICDALoss(...), got {type(loss).__name__}.")
        self.loss = loss
        self.tap = FeatureTap(model, head)
        self.progress = 1.0

    def forward(self, targets: Tensor, **prior: Tensor) -> Tensor:
        """The loss of the model's latest output; `attributes=` or `log_prior=` go to a loss that has such a prior."""
        tap = self.tap
        if not self.training:
            return F.cross_entropy(tap.logits.float(), targets, reduction=self.loss.reduction)
        value = self.loss(tap.features, targets, tap.head, self.progress, tap.logits, **prior)
        tap.clear()
        return value


class RobustCallback(_lightning.Callback):
    """Drives the progress of a module's `TappedLoss` and logs the accuracy of its worst class on validation data.

    Progress is optimiser steps done over steps planned. The figure is taken over all ranks and all batches for which
    `validation_step` called the loss, and logged as `metric` (monitor it with ModelCheckpoint); `metric=None` logs
    nothing. Classes without validation samples are left out.

    Args:
        metric: The name to log under.
    """

    def __init__(self, metric: str | None = "val_worst_class_accuracy") -> None:
        self.metric = metric
        self._confusion: Tensor | None = None
        self._handle: Any = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if str(trainer.precision).startswith("bf16") and trainer.strategy.root_device.type == "cpu":
            require_bf16()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        _tapped_loss(pl_module)
        if not math.isfinite(trainer.estimated_stepping_batches):
            raise InputError("RobustCallback needs a Trainer with an end: give it max_epochs or max_steps.")

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        done = trainer.global_step / max(1, trainer.estimated_stepping_batches)
        _tapped_loss(pl_module).progress = min(1.0, done)

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if self.metric is not None:
            self._forget()
            self._handle = _tapped_loss(pl_module).register_forward_hook(self._count)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self.metric is None:
            return
        confusion = self._confusion
        self._forget()
        if confusion is None:
            raise OperationError(
                f"RobustCallback saw no prediction in {type(pl_module).__name__}.validation_step: call the TappedLoss "
                "there, self.criterion(targets), or make the callback with metric=None."
            )
        worst = worst_known(per_class_accuracy(all_reduce(confusion).tolist()))
        assert worst is not None, "a counted prediction belongs to a class"
        pl_module.log(self.metric, worst)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._forget()

    def _count(self, criterion: TappedLoss, arguments: tuple[Tensor], value: Tensor) -> None:
        predictions, classes = criterion.tap.logits.argmax(dim=1), criterion.loss.num_classes
        pairs = count_confusions(predictions, arguments[0], classes)
        self._confusion = pairs if self._confusion is None else self._confusion + pairs

    def _forget(self) -> None:
        self._confusion = None
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


def _tapped_loss(pl_module: nn.Module) -> TappedLoss:
    losses = [module for module in pl_module.modules() if isinstance(module, TappedLoss)]
    if len(losses) != 1:
        raise InputError(
            f"RobustCallback expects one TappedLoss in {type(pl_module).__name__}, found {len(losses)}: "
            "write self.criterion = TappedLoss(self.network, ICDALoss(...)) in its __init__."
        )
    return losses[0]
