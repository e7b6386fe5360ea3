"""One run from configuration to result."""

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from icda import plugins
from icda.bf16 import require_bf16
from icda.data import Task, create_task, data_task
from icda.data.embedding.samples import Columns
from icda.data.given_labels import relabelled
from icda.data.splits import take_subset
from icda.errors import ExistingFileError, InputError
from icda.explain.margins import named_split
from icda.first_rank import from_first_rank, is_first_rank, together
from icda.functional.confusion import count_confusions
from icda.methods import Method, Setup, check_needs, create_method, method_needs, resolve_method
from icda.methods.base import MissingNeedError
from icda.methods.create import num_networks
from icda.models import FeatureClassifier, create_model
from icda.models.hub import hub
from icda.models.tokenisers import read_by
from icda.report import write_report
from icda.results import RunResult, files
from icda.results.claims import claimed
from icda.results.files import DamagedFileError, read_json, write_json
from icda.selection import check as check_selection
from icda.settings import check
from icda.training.checkpoint import CheckpointError, load_checkpoint, load_networks, load_state, understood
from icda.training.config import TrainConfig, config_from_dict, describe_changes, save_config
from icda.training.environment import code_hash, describe_environment
from icda.training.evaluation import evaluate_split, group_samples
from icda.training.known_groups import with_read_groups
from icda.training.objects import PREFIX, OwnModel, named
from icda.training.plan import seed_everything
from icda.training.progress import ProgressView, describe_run
from icda.training.trainer import Trainer


def run_training(
    config: TrainConfig,
    model: OwnModel | None = None,
    task: Task | None = None,
    resume: bool = False,
    overwrite: bool = False,
    view: ProgressView | None = None,
    judged: str = "test",
    leaves_files: bool = True,
) -> tuple[RunResult, Callable[[], FeatureClassifier]]:
    """Train, evaluate the selected model on the split `judged`, write result.json, explanations.json and report.html.

    `task` and `model` stand in for the names in `config`. Returns the result, and what gives the trained network.
    """
    config = named(config, model, task)
    plugins.load(config.plugin)
    folder = config.folder()
    with claimed(folder, wait=False) if is_first_rank() else nullcontext():
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            make_accelerator(config.precision)  # ranks meet here, and only the first need see the folder
        finished = from_first_rank(lambda: _earlier_result(folder, config, resume, overwrite))
        if finished is None:
            return _train(config, model, task, resume and not overwrite, overwrite, view, judged, leaves_files)
        if is_first_rank():
            _remake_missing(folder, config, finished, readable=model is None and task is None)
        if model is None:
            return finished, lambda: load_folder(folder, allow_outside=config.allow_outside)[2][0]
        networks, _ = build(config, visible_task(config, load_task(config, task, model)), model)
        path = folder / files.MODEL
        load_networks(networks, from_first_rank(lambda: load_checkpoint(path, ("networks",)))["networks"], path)
        return finished, lambda: networks[0]


def _train(
    config: TrainConfig,
    model: OwnModel | None,
    task: Task | None,
    resume: bool,
    overwrite: bool,
    view: ProgressView | None,
    judged: str,
    leaves_files: bool,
) -> tuple[RunResult, Callable[[], FeatureClassifier]]:
    """Train in a folder that is claimed and holds no result, or one to be given up."""
    started, folder = time.perf_counter(), config.folder()
    code_hash()  # kept from here on: files may change while training runs
    task = load_task(config, task, model)
    accelerator = make_accelerator(config.precision)
    visible = visible_task(config, task)
    networks, method = build(config, visible, model)
    trainer = Trainer(config, visible, networks, method, folder, accelerator, view)
    method.before_training(folder)
    if overwrite and accelerator.is_main_process:  # not sooner: a refused run must not cost the earlier one
        for name in (files.RESULT, files.EXPLANATIONS, files.REPORT, files.CHECKPOINT, files.MODEL):
            (folder / name).unlink(missing_ok=True)
    trainer.view.run(describe_run(task, config.model or task.default_model, networks, resolve_method(config.method)))
    with together():
        trainer.run(resume)
        accelerator.wait_for_everyone()
    epoch = trainer.load_model()
    result = replace(
        evaluate_run(config, task, trainer.models, trainer.method, accelerator, judged),
        selected_epoch=epoch,
        history=trainer.history,
        seconds=round(time.perf_counter() - started, 2),
        found=trainer.method.findings() or None,
    )
    if accelerator.is_main_process and leaves_files:
        result.write(folder / files.RESULT)
        _explain(folder, result, task, trainer.models, trainer.method)
    network = trainer.models[0]  # not the trainer, whose optimisers hold more than the network
    return result, lambda: network


def _explain(folder: Path, result: RunResult, task: Task, models: Sequence[FeatureClassifier], method: Method) -> None:
    """Write explanations.json and the page."""
    from icda.explain.run import explain_run

    explanations = explain_run(task, models, method)
    write_json(folder / files.EXPLANATIONS, explanations)
    write_report(folder / files.REPORT, [result], [explanations])


def _remake_missing(folder: Path, config: TrainConfig, result: RunResult, readable: bool) -> None:
    """Make what a run that was killed, or whose disk was full, after result.json has not written.

    Explanations need the model and the task, which are `readable` where both have names.
    """
    if not (folder / files.CONFIG).exists():
        save_config(config, folder / files.CONFIG)
    if (folder / files.REPORT).exists():
        return
    if (folder / files.EXPLANATIONS).exists():  # `icda explain` may have put more into it
        write_report(folder / files.REPORT, [result], [read_json(folder / files.EXPLANATIONS)])
    elif readable and (folder / files.MODEL).exists():
        _, task, networks, method = load_folder(folder, allow_outside=config.allow_outside)
        _explain(folder, result, task, networks, method)
    else:
        write_report(folder / files.REPORT, [result])


def visible_task(config: TrainConfig, task: Task) -> Task:
    """The task as training and selection may see it: without group labels where they are said to be unknown."""
    return task.without_groups() if config.attributes == "unknown" else task


def load_task(config: TrainConfig, task: Task | None = None, model: OwnModel | None = None) -> Task:
    """The task a configuration names, or the one made of the user's own folder or CSV, or `task`.

    It is cut to the subset asked for, and as the model named there reads it; a model that is given reads it as it is.
    """
    task = _find_task(config) if task is None else task
    if config.labels is not None:
        task = relabelled(task, config.labels)
    if config.attributes == "known":
        task = with_read_groups(task)
    if config.subset is not None:  # which groups samples belong to must not decide who is taken, if it is not known
        task = take_subset(task, config.subset, config.data_seed, by_groups=config.attributes == "known")
    named_model = config.model or task.default_model
    return task if model is not None or named_model.startswith(PREFIX) else read_by(task, named_model)


def _find_task(config: TrainConfig) -> Task:
    if config.data is None:
        return create_task(config.task, config.root, config.data_seed)
    columns = Columns(
        config.image_column, config.text_column, config.label_column, config.group_column, config.split_column
    )
    trust: Any = {"skip_unreadable": config.skip_unreadable, "allow_outside": config.allow_outside}
    return data_task(config.data, columns, image_size=config.image_size, seed=config.data_seed, **trust)


def build(config: TrainConfig, task: Task, model: OwnModel | None = None) -> tuple[list[FeatureClassifier], Method]:
    """Networks and method, checked against the task before anything is trained."""
    needs = method_needs(config.method)
    if config.attributes == "unknown" and needs & {"groups", "validation groups"}:
        raise MissingNeedError(f"method {config.method!r} needs group labels, which --attributes unknown withholds.")
    check_needs(resolve_method(config.method), needs, task)
    check_selection(config.selection, task)
    return _assemble(config, task, None, model)


def _assemble(
    config: TrainConfig, task: Task, setup: Setup | None, model: OwnModel | None = None
) -> tuple[list[FeatureClassifier], Method]:
    """Networks for a task, and the method as `setup` has it; without one, as the task does."""
    seed_everything(config.seed)
    name = config.model or task.default_model
    if model is None and name.startswith(PREFIX):
        raise InputError(f"the run trained {name}, a model made in Python: make it again there, and load its weights.")
    networks = [
        create_model(name, task.num_classes, task.input_shape) if model is None else model.make(config, task)
        for _ in range(num_networks(config.method))
    ]
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
    split = named_split(task, split_name)
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
    folder: Path, data: str | None = None, allow_outside: bool = False, allow_hub: bool = False
) -> tuple[TrainConfig, Task, list[FeatureClassifier], Method]:
    """The trained networks and method of an earlier run, with its task or, if `data` is given, other data.

    Whether a table may name images outside its folder, and whether a model may be fetched from a hub, is for the caller to
    say, not for a file that may be a stranger's.
    """
    path = folder / files.MODEL
    if not path.exists():
        raise CheckpointError(
            f"{folder} holds no trained model ({files.MODEL}): give the folder of a finished `icda train`."
        )
    state = load_checkpoint(path, ("networks", "method", "config", "class_names"))
    with understood(path):
        config = config_from_dict(state["config"], str(path))
        setup = read_setup(state["setup"]) if "setup" in state else None
    config = replace(config, data=config.data if data is None else data, allow_outside=allow_outside)
    with hub(allow_hub), plugins.explained(config.plugin, str(path)):  # what a stranger's file names is not imported
        task = load_task(config)
        if list(task.class_names) != state["class_names"]:
            trained, present = ", ".join(map(str, state["class_names"])), ", ".join(task.class_names)
            raise InputError(f"{path} was trained on classes {trained}; the data have {present}.")
        # Not as the data at hand would have it: they may have other groups than the run was given, or none.
        networks, method = build(config, task) if setup is None else _assemble(config, task, setup)
    load_networks(networks, state["networks"], path)
    load_state(method, state["method"], "method state", path)
    return config, task, networks, method


def read_setup(values: Mapping[str, Any]) -> Setup:
    """What a method was given when it was made, from a file: every value of the kind it should be."""
    given = {**values, "input_shape": tuple(values.get("input_shape", ()))}
    check(given, get_type_hints(Setup), "the setup's ")
    return Setup(**given)


def evaluate_folder(
    folder: Path,
    split_name: str = "test",
    data: str | None = None,
    allow_outside: bool = False,
    allow_hub: bool = False,
) -> RunResult:
    """Evaluate the model of an earlier run, on its own data or on other data with the same classes."""
    config, task, networks, method = load_folder(folder, data, allow_outside, allow_hub)
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
    path = folder / files.RESULT
    if overwrite:
        return None
    if not resume:
        if path.exists() or (folder / files.CHECKPOINT).exists():
            raise ExistingFileError(f"{folder} already holds a run: --resume continues it, --overwrite starts again.")
        return None
    if not path.exists():
        return None
    try:
        result = RunResult.read(path)
    except DamagedFileError as error:  # the checkpoint has what is needed to make it again
        warnings.warn(f"{error} It is made again.", stacklevel=3)
        return None
    if result.config_hash == config.hash():
        return result
    changes = describe_changes(result.config or {}, config)
    raise InputError(f"{folder} holds the result of another run ({changes}): use another --out or --overwrite.")
