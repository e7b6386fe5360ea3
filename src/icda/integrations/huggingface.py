"""Losses of icda in Hugging Face's Trainer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from icda.bf16 import require_bf16
from icda.data.torch_datasets import DatasetSource
from icda.errors import InputError, InputTypeError, MissingFileError
from icda.extras import require
from icda.integrations.feature_tap import FeatureTap, unwrap
from icda.losses import LOSSES, AdjustedLoss
from icda.losses.prior_loss import PriorLoss

_transformers: Any = require("transformers", "hf", "Hugging Face trainers")

STATE_FILE = "icda_loss.pt"
_PRIOR_NAMES = ("attributes", "log_prior")  # columns that the loss reads and the model does not


class TrainerLoss(_transformers.TrainerCallback):
    """A loss of icda for the Trainer you have: `Trainer(compute_loss_func=f, callbacks=[f.callback()], ...)`.

    While the model trains it is the given loss at `progress`; while it is evaluated, plain cross entropy. Both are
    divided by the number of samples in all micro batches of a step, as Trainer expects. A loss given by name is made in
    the first call, when the head is known. Without the callback the progress stays at 1 and statistics are not saved.

    Args:
        model: The network that the Trainer trains.
        loss: A registered name, or a loss of icda.
        head: The last linear layer or its path, where it is not found.
        class_counts: (C,), for a loss given by name; or a function that counts them, given the number of classes.
        **options: Options of a loss given by name.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str | AdjustedLoss = "icda",
        *,
        head: str | nn.Module | None = None,
        class_counts: Tensor | Callable[[int], Tensor] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(loss, AdjustedLoss):
            if options:
                raise InputError(
                    f"options {sorted(options)} belong to a loss given by name: set them on {type(loss).__name__}."
                )
        elif isinstance(loss, str):
            LOSSES.get(loss)  # a mistyped name should not wait for the first batch
        else:
            raise InputTypeError(
                f"loss must be a name ({', '.join(LOSSES)}) or a loss of icda, got {type(loss).__name__}."
            )
        self._given, self._options, self._counts, self._named_head = loss, options, class_counts, head
        self.tap = FeatureTap(model, head)
        self.criterion: AdjustedLoss | None = loss if isinstance(loss, AdjustedLoss) else None
        self.progress = 1.0
        self.prior: dict[str, Tensor] = {}  # `attributes` or `log_prior` of the next batch
        self.resume_from: Path | None = None
        self._device: torch.device | None = None
        self._saved: dict[str, Any] | None = None

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Any = None) -> Tensor:
        if labels is None:
            raise InputError("the loss needs class labels, got a batch without 'labels': name that column 'labels'.")
        tap = self.tap
        if tap.model.training:
            criterion = self._ready(tap.logits.device)
            # A data set may have a column of the same name for another end.
            read = "attributes" if getattr(criterion, "prior", None) is not None else "log_prior"
            wanted = isinstance(criterion, PriorLoss) and read in self.prior
            prior = {read: self.prior[read]} if wanted else {}
            value = criterion(tap.features, labels, tap.head, self.progress, tap.logits, **prior)
            total = value * len(labels) if criterion.reduction == "mean" else value.sum()
        else:
            total = F.cross_entropy(tap.logits.float(), labels, reduction="sum")
        tap.clear()
        self.prior = {}
        return total / (len(labels) if num_items_in_batch is None else num_items_in_batch)

    def callback(self) -> TrainerLoss:
        """For `Trainer(callbacks=[...])`: sets the progress, and keeps the statistics in the checkpoints."""
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if model is not None:
            self.follow(model)
        folder = self.resume_from or (_checkpoint_folder(args, state) if state.global_step > 0 else None)
        if folder is not None:
            self.load(folder / STATE_FILE)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.progress = min(1.0, state.global_step / state.max_steps)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # A search over hyper-parameters keeps its trials' checkpoints elsewhere and never resumes them.
        criterion = None if state.is_hyper_param_search else self.criterion
        if args.should_save and criterion is not None:
            torch.save(criterion.state_dict(), _checkpoint_folder(args, state) / STATE_FILE)

    def follow(self, model: nn.Module) -> None:
        """Tap another model from now on; `Trainer(model_init=...)` makes a new one for each training."""
        if unwrap(model) is self.tap.model:
            return
        if not isinstance(self._given, str):
            given = f"the loss was given as one {type(self._given).__name__}"
            raise InputError(f"a new model needs new statistics, but {given}: give its name and loss_options.")
        self.tap.remove()
        self.tap, self.criterion = FeatureTap(model, self._named_head), None
        self._device = None

    def load(self, path: Path) -> None:
        """Restore the statistics; a loss that is not made yet takes them when it is."""
        if not path.is_file():
            raise MissingFileError(
                f"no {path.name} in {path.parent}: that checkpoint was saved without this loss's statistics. Train "
                "again from its weights, from_pretrained(...), without resume_from_checkpoint."
            )
        saved = torch.load(path, map_location="cpu", weights_only=True)
        if self.criterion is None:
            self._saved = saved
        else:
            self.criterion.load_state_dict(saved)

    def _ready(self, device: torch.device) -> AdjustedLoss:
        if self.criterion is None:
            assert isinstance(self._given, str)
            classes = self.tap.num_classes
            counts = self._counts(classes) if callable(self._counts) else self._counts
            self.criterion = LOSSES.get(self._given)(classes, self.tap.feature_dim, counts, **self._options)
            if self._saved is not None:
                self.criterion.load_state_dict(self._saved)
                self._saved = None
        if self._device != device:
            self._device = device
            self.criterion.to(device)
        return self.criterion


compute_loss_func = TrainerLoss  # by the name of the argument that Trainer takes it under


class RobustTrainer(_transformers.Trainer):
    """`transformers.Trainer` with a loss of icda: features, head, class counts and progress are found for you.

    Checkpoints hold the statistics, so that resuming is exact; `criterion` is the loss. Evaluation reports plain cross
    entropy. Columns `attributes` and `log_prior` of the data set go to the loss, whose prior they are
    (`icda.losses.prior_loss`), and not to the model.

    Args:
        *args: Those of `transformers.Trainer`.
        loss: A registered name, or a loss of icda, which keeps its own class counts.
        loss_options: Options of a loss given by name.
        head: The last linear layer or its path, where it is not the one that makes the logits.
        class_counts: (C,), else counted over the training set's labels.
        **kwargs: Those of `transformers.Trainer`.
    """

    def __init__(
        self,
        *args: Any,
        loss: str | AdjustedLoss = "icda",
        loss_options: dict[str, Any] | None = None,
        head: str | nn.Module | None = None,
        class_counts: Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        _check_settings(self)
        counts = partial(count_labels, self.train_dataset) if class_counts is None else class_counts
        self.compute_loss_func = TrainerLoss(self.model, loss, head=head, class_counts=counts, **(loss_options or {}))
        self.add_callback(self.compute_loss_func)

    @property
    def criterion(self) -> AdjustedLoss | None:
        """The loss; None before the first step where it was given by name."""
        return self.compute_loss_func.criterion

    def compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = dict(inputs)
        self.compute_loss_func.prior = {name: inputs.pop(name) for name in _PRIOR_NAMES if name in inputs}
        return super().compute_loss(model, inputs, *args, **kwargs)

    def _set_signature_columns_if_needed(self) -> None:
        """Trainer drops columns that the model's forward does not name."""
        is_first = getattr(self, "_signature_columns", None) is None
        super()._set_signature_columns_if_needed()
        if is_first:
            cast(Any, self)._signature_columns += _PRIOR_NAMES

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        if resume_from_checkpoint is True:
            resume_from_checkpoint = _transformers.trainer_utils.get_last_checkpoint(self.args.output_dir) or True
        named = isinstance(resume_from_checkpoint, (str, Path))
        self.compute_loss_func.resume_from = Path(str(resume_from_checkpoint)) if named else None
        return super().train(resume_from_checkpoint, *args, **kwargs)


def count_labels(dataset: Any, num_classes: int) -> Tensor:
    """How many samples of each class a data set of dicts holds, by its label column if it has one.

    >>> count_labels([{"labels": 0}, {"labels": 2}, {"labels": 0}], num_classes=3).tolist()
    [2, 0, 1]
    """
    try:
        labels, _ = DatasetSource(dataset).columns(lambda rows, description: rows)
    except (InputError, TypeError) as error:
        kind = type(dataset).__name__
        raise InputError(f"cannot count the labels of a {kind} in advance ({error}): give class_counts=...") from error
    return torch.bincount(torch.tensor([int(label) for label in labels]), minlength=num_classes)


def _checkpoint_folder(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


def _check_settings(trainer: Any) -> None:
    """Refuse settings that would be dropped without a word, or break the tap."""
    args = trainer.args
    for wrong, words in (
        (trainer.compute_loss_func is not None, "brings its own compute_loss_func, got another: give it as loss=..."),
        (args.label_smoothing_factor != 0, "smooths no labels, got label_smoothing_factor != 0: set it to 0."),
        (args.n_gpu > 1, f"cannot use DataParallel ({args.n_gpu} GPUs): launch it with torchrun."),
        (trainer.is_fsdp_enabled, "reads the whole head, which FSDP shards: use DDP."),
    ):
        if wrong:
            raise InputError(f"RobustTrainer {words}")
    if args.bf16 and args.device.type == "cpu":
        require_bf16()
