"""One stage while it is trained, begun or taken up again from a checkpoint, and the batches that it reads.

Every batch is a function of the seed and the iteration, so that a resumed training needs no state of its loaders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from icda.data.loader import BatchLoader, balanced_weights
from icda.data.sources import transformed
from icda.data.task import Batch, Split, Task
from icda.methods.base import Context, Method, Sampling, Stage, StepResult
from icda.training.config import TrainConfig
from icda.training.evaluation import to_device
from icda.training.plan import restore_random_state

if TYPE_CHECKING:
    from icda.training.trainer import Trainer


class TrainingBatches:
    """Serves a task's samples to a method, drawn as its stages ask, each rank its share."""

    def __init__(self, config: TrainConfig, task: Task, method: Method, accelerator: Accelerator) -> None:
        self.config, self.task, self.method, self.accelerator = config, task, method, accelerator
        self._drawing: dict[str, BatchLoader] = {}
        self._metadata: BatchLoader | None = None
        if task.metadata is not None:
            self._metadata = self._loader(task.metadata, config.seed + 1, size=method.meta_batch_size)

    def stage_length(self, stage: Stage) -> int:
        """Batches per epoch of this stage; sampling changes which samples they hold, not how many."""
        return len(self._loader(self._split(stage), seed=0))

    def stage_loader(self, stage: Stage) -> BatchLoader:
        """The batches of a stage. `Method.sampling_weights` is asked now where the stage says so."""
        split = self._split(stage)
        return self._loader(split, self.config.seed, self._weights(split, stage.sampling))

    def in_order(self, stage: Stage) -> Iterator[Batch]:
        """The whole split that a stage trains on, as it is: not shuffled, not augmented, not shared among ranks."""
        loader = BatchLoader(self._split(stage), self.config.batch_size, seed=0, shuffle=False, augment=False)
        for batch in loader.epoch(0):
            yield to_device(batch, self.accelerator.device)

    def start_epoch(self) -> None:
        """Forget how `draw` drew: a method's own weights may have changed."""
        self._drawing.clear()

    def draw(self, sampling: Sampling, iteration: int) -> Batch:
        """One more training batch for this iteration."""
        if sampling not in self._drawing:
            weights = self._weights(self.task.train, sampling)
            self._drawing[sampling] = self._loader(self.task.train, self.config.seed + 2, weights)
        return self._numbered(self._drawing[sampling], iteration)

    def metadata(self, iteration: int) -> Batch:
        """The metadata batch of this iteration."""
        assert self._metadata is not None, "check_needs admits no method without its metadata"
        return self._numbered(self._metadata, iteration)

    def share(self, batch: Batch) -> float:
        """What this rank's batch counts for in a mean over ranks: those at the end of an epoch differ in size."""
        world = self.accelerator.num_processes
        if world == 1:
            return 1.0
        sizes = self.accelerator.gather(torch.tensor([batch.num_samples], device=self.accelerator.device))
        return batch.num_samples * world / int(sizes.sum())

    def _split(self, stage: Stage) -> Split:
        if stage.split == "train":
            return self.task.train
        assert self.task.validation is not None, "check_needs admits no method without its validation data"
        return self.task.validation

    def _weights(self, split: Split, sampling: Sampling) -> Tensor | None:
        """What samples are drawn by; None serves each of them once per epoch."""
        if sampling == "uniform":
            return None
        if sampling == "own":
            return self.method.sampling_weights()
        if sampling.startswith("class"):
            weights = balanced_weights(split.targets)
            return weights**2 if sampling == "class_reversed" else weights  # n_c samples of 1/n_c^2: a class has 1/n_c
        assert split.groups is not None, "check_needs admits no method without its groups"
        by_group = sampling == "group_balanced"
        return balanced_weights(split.groups if by_group else self.task.group_domains()[split.groups])

    def _loader(self, split: Split, seed: int, weights: Tensor | None = None, size: int | None = None) -> BatchLoader:
        if self.method.augment_images is not None:
            split = replace(split, source=transformed(split.source, self.method.augment_images))
        return BatchLoader(
            split,
            min(size or self.config.batch_size, len(split)),
            seed=seed,
            shuffle=True,
            augment=True,
            weights=weights,
            rank=self.accelerator.process_index,
            world_size=self.accelerator.num_processes,
        )

    def _numbered(self, loader: BatchLoader, iteration: int) -> Batch:
        epoch, number = divmod(iteration, len(loader))
        return to_device(loader.batch(epoch, number), self.accelerator.device)


class StageRun:
    """The optimisers, wrapped networks and context of the stage that a trainer is at. Make it with `begin` or `resume`."""

    def __init__(self, trainer: Trainer, optimizer_states: Sequence[dict[str, Any]]) -> None:
        """Optimisers start from `optimizer_states`, or from the beginning where there are none."""
        self.trainer, self.position, self.number = trainer, trainer.position, trainer.position.stage
        self.stage = trainer.plan.stages[self.number]
        self.batches_per_epoch = trainer.batches.stage_length(self.stage)
        for model in trainer.models:
            model.encoder.requires_grad_(self.stage.trains == "all")
        for parameter in trainer.frozen:
            parameter.requires_grad_(False)
        optimizers = [make_optimizer(trainer.config, model) for model in trainer.models]
        for optimizer, state in zip(optimizers, optimizer_states, strict=False):
            optimizer.load_state_dict(state)
        trainer.accelerator.free_memory()  # it would keep the last stage's optimisers, and unscale their gradients, too
        prepared = trainer.accelerator.prepare(*trainer.models, *optimizers)
        count = len(trainer.models)
        self.context = self._make_context(prepared[:count], prepared[count:])
        self._update_context()
        self._train_mode()

    @classmethod
    def begin(cls, trainer: Trainer, previous: StageRun | None = None) -> StageRun:
        """Start a stage: with new weights where it asks for them, and with the optimisers of the stage before unless it
        restarts."""
        stage = trainer.plan.stages[trainer.position.stage]
        if stage.reset_head:
            for model in trainer.models:
                model.head.reset_parameters()  # type: ignore[operator]
        if stage.reset_network:
            for model, initial in zip(trainer.models, trainer.initial, strict=True):
                model.load_state_dict(initial)
        run = cls(trainer, [] if previous is None or stage.restart else previous.optimizer_states())
        if stage.on_start is not None:
            stage.on_start(run.context)
        trainer.method.on_stage_start(run.context)
        return run

    @classmethod
    def resume(cls, trainer: Trainer, saved: Mapping[str, Any]) -> StageRun:
        """Take a stage up again where a checkpoint left it. The weights of networks and method are in place already."""
        run = cls(trainer, saved["optimizers"])
        restore_random_state(saved["random"])  # last: making networks and optimisers may have drawn
        return run

    @property
    def batches_epoch(self) -> int:
        """The epoch by which batches are drawn."""
        return self.position.epoch - (self.trainer.plan.start(self.number) if self.stage.as_first else 0)

    def open_epoch(self) -> BatchLoader:
        """Ready to train the epoch at hand: modes, the method's hook, and the batches to come.

        A method's own sampling weights are asked for after its hook, once for each epoch.
        """
        self._update_context()
        self._train_mode()
        if self.position.batch == 0:
            self.trainer.method.on_epoch_start(self.context)
        self.trainer.batches.start_epoch()
        return self.trainer.batches.stage_loader(self.stage)

    def step(self, batch: Batch) -> StepResult:
        """One step of the stage, or of the method, on a batch."""
        self._update_context()
        epoch = self.position.epoch + self.position.batch / self.batches_per_epoch
        rate = self.trainer.plan.learning_rate(self.trainer.config, self.number, epoch)
        for optimizer in self.context.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
        self.context.apply = partial(self._apply, share=self.trainer.batches.share(batch))
        return (self.stage.step or self.trainer.method.step)(batch, self.context)

    def end_epoch(self) -> None:
        """The hooks of an epoch that is over, and of the stage where it was the last one."""
        self.trainer.method.on_epoch_end(self.context)
        if self.position.epoch + 1 < self.trainer.plan.end(self.number):
            return
        if self.stage.on_end is not None:
            self.stage.on_end(self.context)
        self.trainer.method.on_stage_end(self.context)

    def _update_context(self) -> None:
        """Tell the method where training stands."""
        self.context.epoch, self.context.iteration = self.position.epoch, self.position.iteration
        self.context.progress = self.position.iteration / self.trainer.plan.num_iterations

    def _train_mode(self) -> None:
        self.trainer.method.train()
        for model in self.trainer.models:
            model.train()
            if self.stage.trains == "head":
                model.encoder.eval()  # a frozen encoder's BatchNorm statistics are frozen too

    def optimizer_states(self) -> list[dict[str, Any]]:
        return [optimizer.state_dict() for optimizer in self.context.optimizers]

    def _make_context(self, networks: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> Context:
        trainer, position = self.trainer, self.position
        no_metadata = trainer.batches.task.metadata is None
        return Context(
            networks=networks,
            models=trainer.models,
            optimizers=optimizers,
            apply=self._apply,
            training_batches=partial(trainer.batches.in_order, self.stage),
            draw=lambda sampling: trainer.batches.draw(sampling, position.iteration),
            next_metadata=None if no_metadata else lambda: trainer.batches.metadata(position.iteration),
            num_epochs=trainer.plan.num_epochs,
            stage=self.stage,
            training_targets=trainer.batches.task.train.targets,
        )

    def _apply(self, loss: Tensor, share: float = 1.0) -> None:
        """Backward and one optimiser step. DDP averages over ranks, so a rank with fewer samples must count for less."""
        accelerator, clip_norm = self.trainer.accelerator, self.trainer.config.largest_gradient
        for optimizer in self.context.optimizers:
            optimizer.zero_grad()
        accelerator.backward(loss * share if share != 1 else loss)
        for model, optimizer in zip(self.context.networks, self.context.optimizers, strict=True):
            if all(value.grad is None for value in model.parameters()):
                continue  # a network that waits for its stage: a gradient scaler refuses to step without gradients
            if clip_norm is not None:
                # Not accelerator.clip_grad_norm_: in half precision it unscales every optimiser's gradients at each call.
                accelerator.unscale_gradients(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
            optimizer.step()


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
