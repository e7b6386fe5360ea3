"""The loop: stages, epochs, steps, checkpoints. It knows no method and no dataset by name."""

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from icda.data.task import Batch, Split, Task
from icda.errors import InputError, OperationError
from icda.first_rank import from_first_rank
from icda.methods.base import Method, Setup, check_networks
from icda.models.base import FeatureClassifier
from icda.results.files import CHECKPOINT, CONFIG, MODEL
from icda.results.run_result import EpochRecord
from icda.selection import Selector, ValidationView
from icda.training.checkpoint import cpu_state, load_checkpoint, load_networks, load_state, save_checkpoint, understood
from icda.training.config import TrainConfig, config_from_dict, describe_changes, save_config
from icda.training.evaluation import describe_samples, evaluate_split, over_split, to_device
from icda.training.plan import Plan, Position, Tally, random_state
from icda.training.progress import EpochLog, ProgressView
from icda.training.stage_run import StageRun, TrainingBatches

LOGGED = ("accuracy", "worst_class_accuracy", "worst_group_accuracy")  # of the validation split, after every epoch
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
        if self.selector.rule.needs_validation and any(stage.split == "validation" for stage in self.stages):
            raise InputError(
                f"method {config.method!r} trains on the validation split, so selection rule {config.selection!r} would "
                "choose by samples it has learned: use --selection last."
            )
        self.view = view if view is not None and accelerator.is_main_process else ProgressView()
        self.history: list[EpochRecord] = []
        self.position = Position()
        self.batches = TrainingBatches(config, task, self.method, accelerator)
        self.plan = Plan.of(self.stages, self.batches.stage_length)
        resets = any(stage.reset_network for stage in self.stages)
        # Where a stage goes back to. Copies: on a CPU `cpu_state` shares its memory with the network.
        self.initial = [copy.deepcopy(cpu_state(model)) for model in self.models] if resets else []
        self.frozen = [value for model in self.models for value in model.parameters() if not value.requires_grad]

    def run(self, resume: bool = False) -> None:
        """Train to the end, from the checkpoint in `folder` when `resume` is set and there is one."""
        path = self.folder / CHECKPOINT
        saved = from_first_rank(lambda: load_checkpoint(path, RESUMED) if path.exists() else None) if resume else None
        if saved is not None:
            self._restore(saved, path)
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.accelerator.is_main_process:
            save_config(self.config, self.folder / CONFIG)
        log = EpochLog(self.folder, self.history, self.config.tensorboard) if self.accelerator.is_main_process else None
        with self.view:
            if saved is None:
                run = self._begin_stage()
            else:
                with understood(path):
                    run = StageRun.resume(self, saved)
            self.view.start(self.position.iteration, self.plan.num_iterations)
            while self.position.epoch < self.plan.num_epochs:
                if self.position.epoch == self.plan.end(self.position.stage) and self.position.batch == 0:
                    self._plan_again()
                    self.position.stage += 1
                    run = self._begin_stage(run)
                record = self._epoch(run)
                self.view.epoch(record, self.plan.num_epochs)
                if log is not None:
                    log.write(record)
        if log is not None:
            log.close()

    def _plan_again(self) -> None:
        """Ask the method for its stages: what it has found may have changed those to come."""
        self.stages = self.method.stages(self.config.epochs)
        self.plan = Plan.of(self.stages, self.batches.stage_length)

    def _begin_stage(self, previous: StageRun | None = None) -> StageRun:
        if self.stages[self.position.stage].restart:
            self.selector.start_afresh()
        return StageRun.begin(self, previous)

    def _epoch(self, run: StageRun) -> EpochRecord:
        started, position = time.perf_counter(), self.position
        loader = run.open_epoch()
        for batch in loader.epoch(run.batches_epoch, position.batch):
            self._step(run, to_device(batch, self.accelerator.device))
            every = self.config.checkpoint_every
            if every and position.iteration % every == 0 and position.batch < len(loader):
                self._check_weights()
                self._save(run)
        self._check_weights()
        run.end_epoch()
        record = self._close_epoch(run, started)
        self._save(run)
        return record

    def _step(self, run: StageRun, batch: Batch) -> None:
        result = run.step(batch)
        loss = float(result.loss)
        if not torch.isfinite(result.loss):
            raise self._diverged(f"the loss became {loss}")
        self.position.tally.add(result, batch.targets)
        self.position.batch += 1
        self.position.iteration += 1
        self.view.step(self.position.epoch, self.plan.num_epochs, loss, self.position.tally.accuracy())

    def _check_weights(self) -> None:
        """A finite loss may have had a gradient that is not: such weights must not replace a good checkpoint."""
        if not all(torch.isfinite(value).all() for model in self.models for value in model.parameters()):
            raise self._diverged("weights became NaN or infinite")

    def _diverged(self, what: str) -> DivergedError:
        has_saved = (self.folder / CHECKPOINT).exists()
        return DivergedError(
            f"{what} in epoch {self.position.epoch + 1}, iteration {self.position.iteration}: lower --learning-rate or set "
            f"--clip-norm. {'The last checkpoint is from before.' if has_saved else 'Nothing was saved yet.'}"
        )

    def _close_epoch(self, run: StageRun, started: float) -> EpochRecord:
        """Figures of the epoch that was just trained; its model is kept if the selection rule says so."""
        seconds, tally = time.perf_counter() - started, self.position.tally.reduced(self.accelerator)
        own = {**tally.extras(), **self.method.epoch_figures()}
        own |= describe_samples(self.method.sample_figures(), self.task.train)
        validation = self.task.validation if run.stage.judged else None
        seen = None if validation is None else self._look_at_validation(validation)
        observed = {} if seen is None else self.selector.observe(seen)
        judged = None if seen is None else {**seen.metrics, **observed}
        if run.stage.judged and self.selector.rule.needs_metadata:
            assert self.task.metadata is not None, "checked before training"
            judged, _ = evaluate_split(self.method, self.models, self.task, self.task.metadata, self.accelerator)
            own |= {f"metadata_{name}": judged[name] for name in ("accuracy", "nll")}
        record = EpochRecord(
            epoch=self.position.epoch,
            stage=run.stage.name,
            train_loss=tally.loss(),
            train_accuracy=tally.accuracy(),
            learning_rate=run.context.learning_rate,
            figures=own,
            validation={} if seen is None else {**{name: seen.metrics[name] for name in LOGGED}, **observed},
            seconds=round(seconds, 3),
        )
        kept = run.stage.judged and self.selector.update(self.position.epoch, judged)
        # Rule `last` writes the model once, at the end; others whenever it is the best so far.
        due = self.selector.rule.compares or self.position.epoch == self.plan.num_epochs - 1
        if kept and due and self.accelerator.is_main_process:
            self.save_model()
        self.history.append(record)
        self.position.next_epoch()
        return record

    def _look_at_validation(self, validation: Split) -> ValidationView:
        metrics, logits = evaluate_split(self.method, self.models, self.task, validation, self.accelerator)
        network, where = self.models[0], (validation, self.accelerator)
        answer = partial(self.method.shortcut_answers, self.models)
        return ValidationView(
            epoch=self.position.epoch,
            num_epochs=self.plan.num_epochs,
            metrics=metrics,
            logits=logits,
            targets=validation.targets,
            features=lambda: over_split([network], *where, lambda inputs: network(inputs).features.float()),
            head_weight=lambda: network.head_weight.detach().float().cpu(),
            answers=lambda: over_split([*self.models, self.method], *where, answer),
            answers_later=self.method.answers_later,
        )

    def save_model(self) -> None:
        """Write the networks and the method as they are now to `model.pt`."""
        recipe = self.config.epochs, self.config.batch_size, self.config.seed
        state = {
            "networks": [cpu_state(model) for model in self.models],
            "method": cpu_state(self.method),
            "config": self.config.as_dict(),
            "class_names": list(self.task.class_names),
            "epoch": self.position.epoch,
            # What the method was told; with it a model can be read back beside other data, with other groups or none.
            "setup": vars(Setup.of(self.task, self.models[0], *recipe)),
        }
        save_checkpoint(self.folder / MODEL, state)

    def load_model(self) -> int:
        """Read `model.pt` back; returns the epoch it was taken from."""
        path = self.folder / MODEL
        state = from_first_rank(lambda: load_checkpoint(path, ("networks", "method", "epoch", "config")))
        with understood(path):
            config_hash = config_from_dict(state["config"], str(path)).hash()
        if config_hash != self.config.hash():
            changes = describe_changes(state["config"], self.config)
            raise OperationError(f"{path} was written by another run ({changes}) while this one trained: train again.")
        self._load_modules(state, path)
        return int(state["epoch"])

    def _save(self, run: StageRun) -> None:
        tally = self.position.tally.reduced(self.accelerator)
        if not self.accelerator.is_main_process:
            return
        state = {
            "networks": [cpu_state(model) for model in self.models],
            "optimizers": run.optimizer_states(),
            "method": cpu_state(self.method),
            "selector": self.selector.state_dict(),
            "position": replace(self.position, tally=tally).state_dict(),
            "history": [record.as_dict() for record in self.history],
            "random": random_state(),
            "config": self.config.as_dict(),
            "config_hash": self.config.hash(),
            "data_hash": self.task.data_hash,
            "scaler": None if self.accelerator.scaler is None else self.accelerator.scaler.state_dict(),
        }
        save_checkpoint(self.folder / CHECKPOINT, state)

    def _restore(self, state: Mapping[str, Any], path: Path) -> None:
        if state["config_hash"] != self.config.hash():
            changes = describe_changes(state["config"], self.config)
            raise InputError(f"{path} belongs to another run ({changes}): use another --out or --overwrite.")
        if state["data_hash"] != self.task.data_hash:
            raise InputError(
                f"the data behind task {self.task.name!r} changed since {path} was written: use --overwrite."
            )
        self._load_modules(state, path)
        self._plan_again()
        with understood(path):
            self.selector.load_state_dict(state["selector"])
            self.position = Position.from_state(state["position"])
            self.history = [EpochRecord.from_dict(record) for record in state["history"]]
        if (
            not self.accelerator.is_main_process
        ):  # the first goes on with the sums of all, and ranks count the same things
            self.position.tally = Tally(dict.fromkeys(self.position.tally.sums, 0))
        if self.accelerator.scaler is not None and state["scaler"] is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])

    def _load_modules(self, state: Mapping[str, Any], path: Path) -> None:
        load_networks(self.models, state["networks"], path)
        load_state(self.method, state["method"], "method state", path)
