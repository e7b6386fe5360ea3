"""One run from configuration to result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from icda import plugins
from icda.bf16 import require_bf16
from icda.data import Task, create_task, csv_task, folder_task
from icda.data.given_labels import relabelled
from icda.data.subset import take_subset
from icda.errors import ExistingFileError, InputError, MissingFileError
from icda.methods import Method, Setup, check_needs, create_method, method_needs, resolve_method
from icda.methods.base import MissingNeedError
from icda.methods.create import num_networks
from icda.models import FeatureClassifier, create_model
from icda.models.tokenisers import read_by
from icda.report import write_report
from icda.results import RunResult
from icda.results.files import CHECKPOINT, EXPLANATIONS, MODEL, REPORT, RESULT, write_json
from icda.selection import check as check_selection
from icda.statistics.confusion import count_confusions
from icda.training.checkpoint import CheckpointError, load_checkpoint, load_state
from icda.training.config import TrainConfig, config_from_dict, describe_changes
from icda.training.environment import describe_environment
from icda.training.evaluation import evaluate_split, group_samples
from icda.training.progress import ProgressView
from icda.training.seeding import seed_everything
from icda.training.trainer import Trainer


def train(
    config: TrainConfig, *, resume: bool = False, overwrite: bool = False, view: ProgressView | None = None
) -> RunResult:
    """Train, evaluate the selected model on the test split, write result.json, explanations.json and report.html."""
    plugins.load(config.plugin)
    folder = config.folder()
    finished = _earlier_result(folder, config, resume, overwrite)
    if finished is not None:
        return finished
    started = time.perf_counter()
    task = load_task(config)
    accelerator = make_accelerator(config.precision)
    told = told_task(config, task)
    networks, method = build(config, told)
    trainer = Trainer(config, told, networks, method, folder, accelerator, view)
    if overwrite and accelerator.is_main_process:  # not sooner: a run that is refused must not cost the earlier one
        for name in (RESULT, EXPLANATIONS, CHECKPOINT, MODEL):
            (folder / name).unlink(missing_ok=True)
    trainer.run(resume and not overwrite)
    accelerator.wait_for_everyone()
    epoch = trainer.load_model()
    result = replace(
        evaluate_run(config, task, trainer.models, trainer.method, accelerator),
        selected_epoch=epoch,
        history=trainer.history,
        seconds=round(time.perf_counter() - started, 2),
    )
    if accelerator.is_main_process:
        from icda.explain.run import explain_run

        result.write(folder / RESULT)
        explanations = explain_run(task, trainer.models, trainer.method)
        write_json(folder / EXPLANATIONS, explanations)
        write_report(folder / REPORT, [result], [explanations])
    return result


def told_task(config: TrainConfig, task: Task) -> Task:
    """The task as training and selection may see it: without group labels where they are said to be unknown."""
    return task.without_groups() if config.attributes == "unknown" else task


def load_task(config: TrainConfig) -> Task:
    """The task a configuration names, or the one made of the user's own folder or CSV, as its model reads it."""
    task = _find_task(config)
    if config.labels is not None:
        task = relabelled(task, config.labels)
    if config.subset is not None:  # which groups samples belong to must not decide who is taken, if it is not known
        task = take_subset(task, config.subset, config.data_seed, by_groups=config.attributes == "known")
    return read_by(task, config.model or task.default_model)


def _find_task(config: TrainConfig) -> Task:
    if config.data is None:
        return create_task(config.task, config.root, config.data_seed)
    path = Path(config.data)
    if path.is_dir():
        return folder_task(path, config.image_size, config.data_seed, skip_unreadable=config.skip_unreadable)
    if path.is_file():
        return csv_task(
            path,
            image_column=config.image_column,
            text_column=config.text_column,
            label_column=config.label_column,
            group_column=config.group_column,
            split_column=config.split_column,
            image_size=config.image_size,
            seed=config.data_seed,
            skip_unreadable=config.skip_unreadable,
            allow_outside=config.allow_outside,
        )
    raise MissingFileError(f"--data {path}: neither a folder of images nor a CSV file is there.")


def build(config: TrainConfig, task: Task) -> tuple[list[FeatureClassifier], Method]:
    """Networks and method, checked against the task before anything is trained."""
    needs = method_needs(config.method)
    if config.attributes == "unknown" and needs & {"groups", "validation groups"}:
        raise MissingNeedError(f"method {config.method!r} needs group labels, which --attributes unknown withholds.")
    check_needs(resolve_method(config.method), needs, task)
    validation = task.validation
    has_groups = validation is not None and validation.groups is not None
    check_selection(config.selection, validation is not None, has_groups, task.name)
    return _assemble(config, task, None)


def _assemble(config: TrainConfig, task: Task, setup: Setup | None) -> tuple[list[FeatureClassifier], Method]:
    """Networks for a task, and the method as `setup` has it; without one, as the task does."""
    seed_everything(config.seed)
    name = config.model or task.default_model
    count = num_networks(config.method)
    networks = [create_model(name, task.num_classes, task.input_shape) for _ in range(count)]
    if setup is None:
        setup = Setup.of(task, networks[0], config.epochs, config.batch_size, config.seed)
    method = create_method(config.method, setup, config.options)
    return [method.prepare_network(network) for network in networks], method


def evaluate_run(
    config: TrainConfig,
    task: Task,
    models: Sequence[FeatureClassifier],
    method: Method,
    accelerator: Accelerator,
    split_name: str = "test",
) -> RunResult:
    """The part of a result that a trained model and a split decide."""
    splits = task.splits()
    if split_name not in splits:
        raise InputError(f"task {task.name!r} has no {split_name} split: choose from {', '.join(splits)}.")
    split = splits[split_name]
    metrics, logits = evaluate_split(method, models, task, split, accelerator)
    confusion = count_confusions(logits.argmax(1), split.targets, task.num_classes)
    return RunResult(
        task=task.name,
        method=resolve_method(config.method),
        model=config.model or task.default_model,
        seed=config.seed,
        split=split_name,
        metrics=metrics,
        selection=config.selection,
        config=config.as_dict(),
        config_hash=config.hash(),
        data_hash=task.data_hash,
        environment=describe_environment(),
        class_names=list(task.class_names),
        class_counts=task.class_counts.tolist(),
        group_names=list(task.group_names or ()),
        group_samples=group_samples(task, split),
        confusion=confusion.tolist(),
    )


def load_folder(
    folder: Path, data: str | None = None, allow_outside: bool = False
) -> tuple[TrainConfig, Task, list[FeatureClassifier], Method]:
    """The trained networks and method of an earlier run, with its task or, if `data` is given, other data.

    Whether a table may name images outside its folder is for the caller to say, not for a file that may be a stranger's.
    """
    path = folder / MODEL
    if not path.exists():
        raise CheckpointError(f"{folder} holds no trained model ({MODEL}): give the folder of a finished `icda train`.")
    state = load_checkpoint(path, ("networks", "method", "config"))
    config = config_from_dict(state["config"], str(path))
    config = replace(config, data=config.data if data is None else data, allow_outside=allow_outside)
    with plugins.explained(config.plugin, str(path)):  # what a stranger's file names is not imported
        task = load_task(config)
        if list(task.class_names) != state["class_names"]:
            trained, present = ", ".join(state["class_names"]), ", ".join(task.class_names)
            raise InputError(f"{path} was trained on classes {trained}; the data have {present}.")
        # Not as the data at hand would have it: they may have other groups than the run was given, or none.
        networks, method = _assemble(config, task, Setup(**state["setup"])) if "setup" in state else build(config, task)
    for network, saved in zip(networks, state["networks"], strict=True):
        load_state(network, saved, "network", path)
    load_state(method, state["method"], "method state", path)
    return config, task, networks, method


def evaluate_folder(
    folder: Path, split_name: str = "test", data: str | None = None, allow_outside: bool = False
) -> RunResult:
    """Evaluate the model of an earlier run, on its own data or on other data with the same classes."""
    config, task, networks, method = load_folder(folder, data, allow_outside)
    accelerator = make_accelerator("no")
    networks = [network.to(accelerator.device) for network in networks]
    return evaluate_run(config, task, networks, method.to(accelerator.device), accelerator, split_name)


def make_accelerator(precision: str) -> Accelerator:
    """An Accelerator; its precision is process-wide state, cleared here so that runs do not inherit it.

    Without `cpu=True` Accelerate takes every rank that torchrun starts on a machine without a GPU for a run of its own.
    """
    on_cpu = not torch.accelerator.is_available()
    if on_cpu and precision == "bf16":
        require_bf16()
    AcceleratorState._reset_state()
    return Accelerator(mixed_precision=precision, cpu=on_cpu)


def _earlier_result(folder: Path, config: TrainConfig, resume: bool, overwrite: bool) -> RunResult | None:
    """Decide what an existing folder means: the finished result to return, or None to train."""
    path = folder / RESULT
    if overwrite:
        return None
    if not resume:
        if path.exists() or (folder / CHECKPOINT).exists():
            raise ExistingFileError(f"{folder} already holds a run: --resume continues it, --overwrite starts again.")
        return None
    if not path.exists():
        return None
    result = RunResult.read(path)
    if result.config_hash == config.hash():
        return result
    changes = describe_changes(result.config or {}, config)
    raise InputError(f"{folder} holds the result of another run ({changes}): use another --out or --overwrite.")
