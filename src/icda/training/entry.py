"""The one function that trains: by names, with objects, or on datasets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from rich.progress import track
from torch import nn

from icda.data.task import Task
from icda.data.torch_datasets import Column, dataset_task
from icda.errors import InputError, OperationError
from icda.first_rank import is_first_rank
from icda.results import RunResult
from icda.settings import check_names
from icda.terminal import make_console
from icda.training.config import OWN_DATA_CLIP_NORM, TrainConfig
from icda.training.objects import GivenModel, OwnModel
from icda.training.progress import ProgressView
from icda.training.run import run_training

Network = TypeVar("Network", bound=nn.Module)


class TrainingResult(RunResult):
    """A `RunResult` that also has the trained network."""

    _find: Callable[[], nn.Module] | None = None

    @classmethod
    def of(cls, result: RunResult, find: Callable[[], nn.Module]) -> TrainingResult:
        """A result beside what gives its network."""
        whole = cls(**{entry.name: getattr(result, entry.name) for entry in fields(result)})
        whole._find = find
        return whole

    @property
    def network(self) -> nn.Module:
        """The trained network, in evaluation mode: your own, with the keys of its own state_dict.

        A method with a head of its own (a cosine head, say) leaves it in the place of yours. One that changes the encoder
        (bbn) leaves a `FeatureClassifier`.
        """
        if self._find is None:
            raise OperationError(
                "this result was read from a file, which has no network: train again with resume=True."
            )
        network = self._find()
        self._find = lambda: network
        return network

    def load_into(self, network: Network) -> Network:
        """Copy the trained weights into another network of the same make; returns it."""
        try:
            network.load_state_dict(self.network.state_dict())
        except RuntimeError as error:
            raise InputError(
                f"the trained {type(self.network).__name__} does not fit a {type(network).__name__}: {error}"
            ) from error
        return network


def train(
    config: TrainConfig | None = None,
    *,
    model: GivenModel | None = None,
    train: Any = None,
    validation: Any = None,
    test: Any = None,
    metadata: Any = None,
    inputs: Column | None = None,
    targets: Column | None = None,
    groups: Any = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
    head: str | None = None,
    task: Task | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    view: ProgressView | None = None,
    **settings: Any,
) -> TrainingResult:
    """Train a network, select an epoch, evaluate it.

    What to train on is `train`, with `validation` and the rest, or a `task`, or what `config` names. Datasets are torch
    Datasets, Hugging Face datasets or tensors (inputs, targets); `icda.data.dataset_task` says how they are read.

    Args:
        config: All settings in one object. Without it, and without datasets, the defaults of `TrainConfig`.
        model: An nn.Module that ends in a linear layer, or a function that makes one. With `train` the module itself is
            trained; with `task` or `config` a copy of it. Without a model the one that the task or `config` names.
        train: Dataset to train on.
        validation: Dataset to select by (`selection="validation_worst_class"`), evaluated after every epoch.
        test: Dataset to evaluate on, once; without it validation, or else training data, and `result.split` says so.
        metadata: Small clean dataset, for methods that learn on one (`method="meta_icda"`).
        inputs: Key or position of the input in an item.
        targets: Key or position of the label in an item.
        groups: Key or position of the group in an item, the groups (N,) of `train`, or a dict of them by split.
        collate_fn: Makes a batch of items, as a DataLoader's does.
        head: Path of the model's last linear layer, where it is not found.
        task: A task made in Python, in the place of datasets.
        out: Folder for checkpoint, logs, result.json and report.html. With datasets and no `config`, None leaves
            nothing on disk.
        resume: Whether to go on from the checkpoint in that folder.
        overwrite: Whether to begin anew in a folder that holds a run.
        view: Who is told of every step and epoch.
        **settings: Any of `TrainConfig`: `method`, `options`, `epochs`, `batch_size`, `learning_rate`, `selection` ...

    Returns:
        The result: `metrics`, `history`, and the trained `network`.

    >>> import torch
    >>> x, y = torch.randn(60, 4), torch.arange(60) % 3
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> result = train(model=net, train=(x, y), method="icda", epochs=1)
    >>> result.network is net, result.split
    (True, 'train')
    """
    check_names(settings, [entry.name for entry in fields(TrainConfig)], "train", "setting")
    settled = replace(config or TrainConfig(), **settings)
    given = {"validation": validation, "test": test, "metadata": metadata, "groups": groups, "collate_fn": collate_fn}
    if train is None and (lonely := [name for name, value in given.items() if value is not None]):
        raise InputError(f"{lonely[0]} belongs to a dataset to train on: give train= as well.")
    if train is not None and task is not None:
        raise InputError("train= and task= both say what to train on: give one of them.")
    if train is not None and model is None:
        raise InputError("train= needs model=, the network to train: an nn.Module, or a function that makes one.")
    judged, leaves_files = "test", True
    if train is not None:
        judged = next((name for name in ("test", "validation") if given[name] is not None), "train")
        leaves_files = out is not None or config is not None
        task = dataset_task(train, inputs=inputs, targets=targets, track=_track, **given)
        if settled.clip_norm == "auto":  # data of the user's own
            settled = replace(settled, clip_norm=OWN_DATA_CLIP_NORM)
    own = None if model is None else OwnModel(model, head, in_place=train is not None)
    with ExitStack() as stack:
        if not leaves_files:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="icda-")), "run")
        if out is not None:
            settled = replace(settled, out=str(out))
        try:
            result, find = run_training(settled, own, task, resume, overwrite, view, judged, leaves_files)
        finally:
            networks = [] if own is None else own.whole()
    if not leaves_files:
        result = replace(result, config={**(result.config or {}), "out": ""})
    return TrainingResult.of(result, (lambda: networks[0]) if networks else find)


def _track(rows: range, description: str) -> Any:
    """A bar on a terminal; nothing elsewhere, nor on any rank but the first."""
    console = make_console(stderr=True)
    shown = console.is_terminal and is_first_rank()
    return track(rows, description, console=console, disable=not shown, transient=True)
