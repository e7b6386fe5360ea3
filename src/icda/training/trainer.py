"""The loop: stages, epochs, steps, checkpoints. It knows no method and no dataset by name."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from icda.data.loader import BatchLoader
from icda.data.task import Batch, Split, Task
from icda.errors import InputError, OperationError
from icda.methods.base import Context, Method, Sampling, Setup, Stage, check_networks
from icda.models.base import FeatureClassifier
from icda.selection import Selector
from icda.selection.pseudo_groups import guess_epoch, strength_groups, worst_pseudo_group
from icda.selection.rules import PSEUDO_GROUP_METRIC
from icda.training.batches import TrainingBatches
from icda.training.checkpoint import load_checkpoint, load_state, save_checkpoint
from icda.training.config import TrainConfig, describe_changes, save_config
from icda.training.evaluation import encode_split, evaluate_split, to_device
from icda.training.logs import EpochLog
from icda.training.position import Position
from icda.training.progress import ProgressView, QuietView
from icda.training.schedule import learning_rate
from icda.training.seeding import random_state, restore_random_state

CHECKPOINT = "checkpoint.pt"
MODEL = "model.pt"
RESUMED = ("networks", "optimizers", "method", "selector", "position", "history", "random", "config_hash", "data_hash")


class DivergedError(OperationError):
    """The loss is no longer a finite number."""


class Trainer:
    """Trains networks with a method on a task, and can be killed and resumed at any point with the same result.

    `folder` receives `checkpoint.pt` (all that is needed to go on), `model.pt` (the selected model) and `log.jsonl`.
    """

    def __init__(
        self,
        config: TrainConfig,
        task: Task,
        networks: Sequence[FeatureClassifier],
        method: Method,
        folder: Path,
        accelerator: Accelerator,
        view: ProgressView | None = None,
    ) -> None:
        check_networks(method, len(networks))
        self.config, self.task, self.folder = config, task, folder
        self.accelerator = accelerator
        self.models = [network.to(accelerator.device) for network in networks]
        if task.input_kind == "image":
            self.models = [model.to(memory_format=torch.channels_last) for model in self.models]  # type: ignore[call-overload]
        self.method = method.to(accelerator.device)
        self.stages = method.stages(config.epochs)
        self.selector = Selector(config.selection)
        _check_selection(config, self.stages, self.selector)
        self.view = view if view is not None and accelerator.is_main_process else QuietView()
        self.history: list[dict[str, Any]] = []
        self.position = Position()
        self.context: Context
        self.batches = TrainingBatches(config, task, self.method, accelerator)
        self.loader: BatchLoader
        self._num_iterations = sum(stage.epochs * self.batches.stage_length(stage) for stage in self.stages)
        resets = any(stage.reset_network for stage in self.stages)
        # Copies: on a CPU `_state` shares its memory with the network, and would follow the training.
        self._initial = [copy.deepcopy(_state(model)) for model in self.models] if resets else []

    # -- the loop -----------------------------------------------------------------------------------------------------

    def run(self, resume: bool = False) -> None:
        """Train to the end, from the checkpoint in `folder` when `resume` is set and there is one."""
        path = self.folder / CHECKPOINT
        saved = load_checkpoint(path, RESUMED) if resume and path.exists() else None
        if saved is not None:
            self._restore(saved, path)
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._is_main:
            save_config(self.config, self.folder / "config.yaml")
        log = EpochLog(self.folder, self.history, self.config.tensorboard) if self._is_main else None
        with self.view:
            self._start_stage(saved)
            self.view.start(self.position.iteration, self._num_iterations)
            while self.position.epoch < self._num_epochs:
                if self.position.epoch == self._stage_end and self.position.batch == 0:
                    self.position.stage += 1
                    self._start_stage(None)
                record = self._epoch()
                self.view.epoch(record, self._num_epochs)
                if log is not None:
                    log.write(record)
        if log is not None:
            log.close()

    def _epoch(self) -> dict[str, Any]:
        started, position = time.perf_counter(), self.position
        self._update_context()
        self._set_training_mode()
        if position.batch == 0:
            self.method.on_epoch_start(self.context)
        self.batches.start_epoch()
        if self.context.stage.sampling == "own":
            self.loader = self.batches.stage_loader(self.context.stage)
        for batch in self.loader.epoch(position.epoch, position.batch):
            self._step(to_device(batch, self.accelerator.device))
            every = self.config.checkpoint_every
            if every and position.iteration % every == 0 and position.batch < len(self.loader):
                self._check_weights()
                self._save()
        self._check_weights()
        self.method.on_epoch_end(self.context)
        record = self._close_epoch(time.perf_counter() - started)
        self._save()
        return record

    def _step(self, batch: Batch) -> None:
        self._update_context()
        self._set_learning_rate()
        self._batch_share = self.batches.share(batch)
        result = self.method.step(batch, self.context)
        loss = float(result.loss)
        if not torch.isfinite(result.loss):
            raise self._diverged(f"the loss became {loss}")
        self.position.tally.add(result, batch.targets)
        self.position.batch += 1
        self.position.iteration += 1
        self.view.step(self.position.epoch, self._num_epochs, loss, self.position.tally.accuracy())

    def _check_weights(self) -> None:
        """A finite loss may have had a gradient that is not: such weights must not replace a good checkpoint."""
        if not all(torch.isfinite(value).all() for model in self.models for value in model.parameters()):
            raise self._diverged("weights became NaN or infinite")

    def _diverged(self, what: str) -> DivergedError:
        saved = (
            "The last checkpoint is from before." if (self.folder / CHECKPOINT).exists() else "Nothing was saved yet."
        )
        return DivergedError(
            f"{what} in epoch {self.position.epoch + 1}, iteration {self.position.iteration}: "
            f"lower --learning-rate or set --clip-norm. {saved}"
        )

    def _close_epoch(self, seconds: float) -> dict[str, Any]:
        tally = self.position.tally.reduced(self.accelerator)
        record: dict[str, Any] = {
            "epoch": self.position.epoch,
            "stage": self.context.stage.name,
            "train_loss": tally.loss(),
            "train_accuracy": tally.accuracy(),
            "learning_rate": self.context.learning_rate,
            **tally.extras(),
            **self.method.epoch_figures(),
        }
        metrics = None
        if self.task.validation is not None:
            metrics, logits = evaluate_split(
                self.method, self.models, self.task, self.task.validation, self.accelerator
            )
            for name in ("accuracy", "worst_class_accuracy", "worst_group_accuracy"):
                record[f"validation_{name}"] = metrics[name]
            if self.selector.rule.guesses_groups:
                worst = self._worst_pseudo_group(self.task.validation, logits)
                metrics[PSEUDO_GROUP_METRIC] = -1.0 if worst is None else worst  # any epoch with groups is better
                record[f"validation_{PSEUDO_GROUP_METRIC}"] = worst
        record["seconds"] = round(seconds, 3)
        if self.selector.update(self.position.epoch, metrics) and self._is_main and self._keeps_now():
            self.save_model()
        self.history.append(record)
        self.position.next_epoch()
        return record

    def _worst_pseudo_group(self, validation: Split, logits: Tensor) -> float | None:
        """The worst guessed group's accuracy; None before groups are guessed."""
        if self.selector.pseudo_groups is None:
            if self.position.epoch < guess_epoch(self._num_epochs):
                return None
            features = encode_split(self.models[0], validation, self.accelerator)
            weight = self.models[0].head.weight
            assert isinstance(weight, Tensor)
            self.selector.pseudo_groups = strength_groups(features, validation.targets, weight.detach().float().cpu())
        worst = worst_pseudo_group(logits, validation.targets, self.selector.pseudo_groups)
        assert worst is not None, "a validation split is never empty"
        return worst

    # -- a step's surroundings ----------------------------------------------------------------------------------------

    def _apply(self, loss: Tensor) -> None:
        """Backward and one optimiser step. DDP averages over ranks, so a rank with fewer samples must count for less."""
        for optimizer in self.context.optimizers:
            optimizer.zero_grad()
        self.accelerator.backward(loss * self._batch_share if self._batch_share != 1 else loss)
        for model, optimizer in zip(self.context.networks, self.context.optimizers, strict=True):
            if self.config.clip_norm is not None:
                # Not accelerator.clip_grad_norm_: in half precision it unscales every optimiser's gradients at each call.
                self.accelerator.unscale_gradients(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), self.config.clip_norm)
            optimizer.step()

    def _update_context(self) -> None:
        context, position = self.context, self.position
        context.epoch, context.iteration = position.epoch, position.iteration
        context.progress = position.iteration / self._num_iterations

    def _set_learning_rate(self) -> None:
        stage, start = self.context.stage, self._stage_end - self.context.stage.epochs
        epoch = self.position.epoch + self.position.batch / len(self.loader)
        if stage.restart:
            rate = learning_rate(self.config, epoch - start, stage.epochs, self._num_epochs)
        else:
            rate = learning_rate(self.config, epoch, self._num_epochs)
        if stage.learning_rate is not None:
            rate *= stage.learning_rate / self.config.learning_rate
        for optimizer in self.context.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate

    def _set_training_mode(self) -> None:
        self.method.train()
        for model in self.models:
            model.train()
            if self.context.stage.trains == "head":
                model.encoder.eval()  # a frozen encoder's BatchNorm statistics are frozen too

    # -- stages -------------------------------------------------------------------------------------------------------

    def _start_stage(self, saved: dict[str, Any] | None) -> None:
        stage = self.stages[self.position.stage]
        if stage.reset_head and saved is None:
            for model in self.models:
                model.head.reset_parameters()  # type: ignore[operator]
        if stage.restart and saved is None:
            self.selector.start_afresh()
        if stage.reset_network and saved is None:
            for model, initial in zip(self.models, self._initial, strict=True):
                load_state(model, initial, "network", self.folder)
        for model in self.models:
            model.encoder.requires_grad_(stage.trains == "all")
        optimizers = [make_optimizer(self.config, model) for model in self.models]
        if saved is not None:
            carried = saved["optimizers"]
        elif self.position.stage > 0 and not stage.restart:
            carried = [optimizer.state_dict() for optimizer in self.context.optimizers]
        else:
            carried = []
        for optimizer, state in zip(optimizers, carried, strict=False):
            optimizer.load_state_dict(state)
        count = len(self.models)
        self.accelerator.free_memory()  # it would keep the last stage's optimisers, and unscale their gradients, too
        prepared = self.accelerator.prepare(*self.models, *optimizers)
        if stage.sampling != "own":  # a method's own weights are asked for at the beginning of an epoch
            self.loader = self.batches.stage_loader(stage)
        self.context = Context(
            networks=prepared[:count],
            models=self.models,
            optimizers=prepared[count:],
            apply=self._apply,
            training_batches=partial(self.batches.in_order, stage),
            draw=self._draw,
            next_metadata=None if self.task.metadata is None else self._next_metadata,
            num_epochs=self._num_epochs,
            stage=stage,
        )
        self._batch_share = 1.0
        self._update_context()
        self._set_training_mode()
        if saved is not None:
            restore_random_state(saved["random"])
        else:
            self.method.on_stage_start(self.context)

    def _draw(self, sampling: Sampling) -> Batch:
        return self.batches.draw(sampling, self.position.iteration)

    def _next_metadata(self) -> Batch:
        return self.batches.metadata(self.position.iteration)

    # -- saving and restoring -----------------------------------------------------------------------------------------

    def save_model(self) -> None:
        """Write the networks and the method as they are now to `model.pt`."""
        state = {
            "networks": [_state(model) for model in self.models],
            "method": _state(self.method),
            "config": self.config.as_dict(),
            "class_names": list(self.task.class_names),
            "epoch": self.position.epoch,
            "setup": vars(self._setup()),
        }
        save_checkpoint(self.folder / MODEL, state)

    def load_model(self) -> int:
        """Read `model.pt` back; returns the epoch it was taken from."""
        path = self.folder / MODEL
        state = load_checkpoint(path, ("networks", "method", "epoch"))
        self._load_modules(state, path)
        return int(state["epoch"])

    def _save(self) -> None:
        tally = self.position.tally.reduced(self.accelerator)
        if not self._is_main:
            return
        state = {
            "networks": [_state(model) for model in self.models],
            "optimizers": [optimizer.state_dict() for optimizer in self.context.optimizers],
            "method": _state(self.method),
            "selector": self.selector.state_dict(),
            "position": replace(self.position, tally=tally).state_dict(),
            "history": self.history,
            "random": random_state(),
            "config": self.config.as_dict(),
            "config_hash": self.config.hash(),
            "data_hash": self.task.data_hash,
            "scaler": None if self.accelerator.scaler is None else self.accelerator.scaler.state_dict(),
        }
        save_checkpoint(self.folder / CHECKPOINT, state)

    def _restore(self, state: dict[str, Any], path: Path) -> None:
        check_same_run(state, self.config, self.task, path)
        self._load_modules(state, path)
        self.selector.load_state_dict(state["selector"])
        self.position = Position.from_state(state["position"])
        if not self._is_main:  # the first rank goes on with the sums of all
            self.position.tally = self.position.tally.zeroed()
        self.history = state["history"]
        if self.accelerator.scaler is not None and state["scaler"] is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])

    def _load_modules(self, state: dict[str, Any], path: Path) -> None:
        for model, saved in zip(self.models, state["networks"], strict=True):
            load_state(model, saved, "network", path)
        load_state(self.method, state["method"], "method state", path)

    def _setup(self) -> Setup:
        """What the method was told; with it a model can be read back beside other data, with other groups or none."""
        return Setup.of(self.task, self.models[0], self.config.epochs, self.config.batch_size, self.config.seed)

    # -- small facts --------------------------------------------------------------------------------------------------

    @property
    def _is_main(self) -> bool:
        return self.accelerator.is_main_process

    @property
    def _num_epochs(self) -> int:
        return sum(stage.epochs for stage in self.stages)

    @property
    def _stage_end(self) -> int:
        return sum(stage.epochs for stage in self.stages[: self.position.stage + 1])

    def _keeps_now(self) -> bool:
        """Rule `last` writes the model once, at the end; the others whenever it is the best so far."""
        return self.selector.rule.needs_validation or self.position.epoch == self._num_epochs - 1


def _check_selection(config: TrainConfig, stages: Sequence[Stage], selector: Selector) -> None:
    if selector.rule.needs_validation and any(stage.split == "validation" for stage in stages):
        raise InputError(
            f"method {config.method!r} trains on the validation split, so selection rule {config.selection!r} would "
            "choose by samples it has learned: use --selection last."
        )


def make_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    if config.optimizer == "adam":
        return torch.optim.Adam(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    return torch.optim.SGD(
        model.parameters(),
        lr=config.learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.momentum > 0,
    )


def check_same_run(state: dict[str, Any], config: TrainConfig, task: Task, path: Path) -> None:
    """A checkpoint may only be resumed by the run that wrote it."""
    if state["config_hash"] != config.hash():
        changes = describe_changes(state["config"], config)
        raise InputError(f"{path} belongs to another run ({changes}): use another --out or --overwrite.")
    if state["data_hash"] != task.data_hash:
        raise InputError(f"the data behind task {task.name!r} changed since {path} was written: use --overwrite.")


def _state(module: nn.Module) -> dict[str, Any]:
    """A state_dict on the CPU; `get_extra_state` may have put plain data beside the tensors."""
    return {name: _to_cpu(value) for name, value in module.state_dict().items()}


def _to_cpu(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _to_cpu(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_to_cpu(part) for part in value)
    return value
