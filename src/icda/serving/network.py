"""A trained network with the method's own way of answering: what `icda train` leaves in its folder."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from icda import plugins
from icda.data import create_task
from icda.data.embedding.samples import Reads, Samples
from icda.data.images import find_unreadable
from icda.data.sources import ImageArray, ImageFiles, TextArray
from icda.data.task import Inputs
from icda.data.tokens import Tokeniser, hash_tokenise
from icda.errors import InputError, OperationError
from icda.methods import Method, Setup, create_method, resolve_method
from icda.methods.create import num_networks
from icda.models import FeatureClassifier, create_model
from icda.models.base import evaluating
from icda.models.hub import hub
from icda.models.tokenisers import tokeniser_of
from icda.results.files import MODEL
from icda.serving.model import Answers, Model
from icda.training.checkpoint import CheckpointError, load_checkpoint, load_networks, load_state, understood
from icda.training.config import TrainConfig, config_from_dict
from icda.training.evaluation import EVALUATION_BATCH
from icda.training.objects import PREFIX
from icda.training.run import read_setup

Images = Callable[[Sequence[Path]], ImageFiles]  # a source of these files, prepared as in the training


@dataclass
class NetworkModel(Model):
    """Networks and the method they were trained with; texts are cut to `max_length` ids, images prepared by `images`."""

    classes: np.ndarray
    reads: Reads
    config: TrainConfig
    networks: list[FeatureClassifier]
    method: Method
    input_shape: tuple[int, ...]
    class_counts: list[int]  # training samples of each class
    images: Images | None = None
    tokeniser: Tokeniser | None = None
    split_column: str | None = None

    def described(self, data: str) -> dict[str, Any]:
        config = replace(self.config, data=data)
        same = {name: getattr(config, name) for name in ("model", "seed", "selection")}
        return {
            "method": resolve_method(config.method),
            **same,
            "config": config.as_dict(),
            "config_hash": config.hash(),
        }

    def answer_features(self, features: np.ndarray) -> Answers:
        if self.reads.kind != "features":
            raise InputError(f"this network reads {self.reads.kind}s, not features: give a list of {self.reads.kind}s.")
        values = torch.from_numpy(np.ascontiguousarray(features)).float()
        return self._answer(values.split(EVALUATION_BATCH) if len(values) else (), np.ones(len(values), dtype=bool))

    def answer(self, samples: Samples, rows: range, skip_unreadable: bool = False) -> Answers:
        chosen = [samples.inputs[row] for row in rows]
        kept = np.ones(len(chosen), dtype=bool)
        if self.reads.kind == "text":
            texts = TextArray([str(text) for text in chosen], hash_tokenise, self.input_shape[0])
            source: TextArray | ImageFiles = texts if self.tokeniser is None else texts.with_tokeniser(self.tokeniser)
        else:
            assert self.images is not None
            source = self.images([Path(path) for path in chosen])
            if skip_unreadable:  # else the source names all broken files at once
                broken = set(find_unreadable(source.paths, source.size, source.prepare))
                kept = np.array([path not in broken for path in source.paths])
        readable = torch.from_numpy(kept.nonzero()[0])
        return self._answer(map(source.fetch, readable.split(EVALUATION_BATCH) if len(readable) else ()), kept)

    @torch.no_grad()
    def _answer(self, batches: Iterable[Inputs], kept: np.ndarray) -> Answers:
        features: list[Tensor] = [torch.empty(0, self.networks[0].feature_dim)]
        logits: list[Tensor] = [torch.empty(0, len(self.classes))]
        towards: list[Tensor | None] = []
        unbiased = getattr(self.method, "found", {}).get("no_shortcut")
        own_rule = type(self.method).predict is not Method.predict
        with evaluating(*self.networks, self.method):
            for inputs in batches:
                output = self.networks[0](inputs)
                features.append(output.features.float())
                logits.append((self.method.predict(self.networks, inputs) if own_rule else output.logits).float())
                # What the method's biased networks see; nothing where they showed no sign of a shortcut.
                towards.append(None if unbiased else self.method.shortcut_answers(self.networks, inputs))
        pointed = [part for part in towards if part is not None]
        points_to = torch.cat(pointed).numpy() if pointed else None
        return Answers(torch.cat(features).numpy(), torch.cat(logits).numpy(), kept, points_to)


def load_network(folder: Path, allow_hub: bool = False) -> NetworkModel:
    """The model of an `icda train` run, without its data; the checkpoint is read without running code."""
    path = folder / MODEL
    state = load_checkpoint(path, ("networks", "method", "config", "class_names"))
    if "setup" not in state:
        raise CheckpointError(f"{path} was written by an older icda and cannot be used without its data: train again.")
    with understood(path):
        config, setup = config_from_dict(state["config"], str(path)), read_setup(state["setup"])
    with hub(allow_hub), plugins.explained(config.plugin, str(path)):  # what a stranger's file names is not imported
        kind, name, images = _inputs(config, setup)
        networks = [
            create_model(name, setup.num_classes, setup.input_shape) for _ in range(num_networks(config.method))
        ]
        tokeniser = tokeniser_of(name) if kind == "text" else None
        method = create_method(config.method, setup, config.options)
    networks = [method.prepare_network(network) for network in networks]
    load_networks(networks, state["networks"], path)
    load_state(method, state["method"], "method state", path)
    size = setup.input_shape[1] if kind == "image" else None
    width = setup.input_shape[0] if kind == "features" else setup.feature_dim
    named = {"column": config.text_column or config.image_column}
    named |= {"label": config.label_column, "group": config.group_column}
    reads = Reads(kind, width, image_size=size, **named)  # type: ignore[arg-type]
    config = replace(config, model=name)
    classes, counts = np.array(state["class_names"]), torch.as_tensor(setup.class_counts).tolist()
    known = counts, images, tokeniser, config.split_column
    return NetworkModel(classes, reads, config, networks, method, setup.input_shape, *known)


def _inputs(config: TrainConfig, setup: Setup) -> tuple[str, str, Images | None]:
    """The kind of inputs, the model's name, and how image files are prepared."""
    if (config.model or "").startswith(PREFIX):
        raise OperationError(
            f"the network of this run was given in Python ({config.model}) and has no name: make it again yourself, and "
            f"load its weights from {MODEL}."
        )
    if config.data is not None:
        if len(setup.input_shape) == 3:
            name = config.model or "resnet20"
            return "image", name, ImageFiles([], setup.input_shape[1]).with_paths
        # Texts and features both have one number as their shape.
        name = config.model or ("mlp" if str(config.data).lower().endswith(".npz") else "bag_of_words")
        return "features" if tokeniser_of(name) is None else "text", name, None
    # The task says how its pixels are standardised; that much of its data must be there.
    task = create_task(config.task, config.root, config.data_seed)
    return task.input_kind, config.model or task.default_model, _like(task.test.source)


def _like(source: object) -> Images | None:
    """Image files prepared as a task's own images are."""
    if isinstance(source, ImageArray):
        mean, std = source.normaliser.mean, source.normaliser.std
        return ImageFiles([], int(source.images.shape[1]), mean, std).with_paths if len(mean) == 3 else _refuse_grey
    return source.with_paths if isinstance(source, ImageFiles) else None


def _refuse_grey(paths: Sequence[Path]) -> ImageFiles:
    raise OperationError("the run was trained on grey images, files are read as RGB: use icda.load(folder).networks.")
