"""Do meta-learning methods learn what they are for? Small tasks, one recipe, and what the strengths say of wrong labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional as F

from icda.data import Task
from icda.errors import InputError
from icda.methods.meta_icda import MetaICDAMethod
from icda.models.base import FeatureClassifier
from icda.results import RunResult
from icda.training import TrainConfig
from icda.training.grid import run_grid
from icda.training.run import load_folder

TASKS = ("digits_lt", "digits_flip_noise", "digits_coloured")
METHODS = ("icda", "meta_icda", "meta_icda_signed", "metasaug", "meta_weight_net", "lsda")


@dataclass(frozen=True)
class Separation:
    """How well a number about each training sample finds the mislabelled ones (AUROC).

    A learned strength that is low marks a wrong label: what the metadata contradict gets no margin.
    """

    seed: int
    low_learned_strength: float
    direct_strength: float
    loss: float


def run_meta_grid(out: str, seeds: int, epochs: int, jobs: int, console: Console) -> list[RunResult]:
    recipe = TrainConfig(epochs=epochs, out=f"{out}/{{task}}/{{method}}/seed{{seed}}")
    return run_grid(recipe, TASKS, METHODS, seeds, console, jobs=jobs)


def noise_separation(folder: Path) -> Separation:
    """AUROC for mislabelled training samples of the learned strength, of the angle's, and of the plain loss."""
    config, task, networks, method = load_folder(folder)
    if not isinstance(method, MetaICDAMethod) or task.train.clean_targets is None:
        raise InputError(f"{folder} is not a Meta-ICDA run on a task with known label noise.")
    wrong = (task.train.targets != task.train.clean_targets).numpy()
    numbers = _numbers(task, networks[0], method)
    scores = {name: float(roc_auc_score(wrong, value.numpy())) for name, value in numbers.items()}
    return Separation(config.seed, **scores)


@torch.no_grad()
def _numbers(task: Task, network: FeatureClassifier, method: MetaICDAMethod) -> dict[str, Tensor]:
    network.eval()
    method.eval()
    batch = task.train.batch(torch.arange(len(task.train)))
    output = network(batch.inputs)
    weight = network.head_weight
    described = method.describe(output.logits, output.features, batch.targets, weight, batch.index)
    direct = method.criterion.strength(output.features, batch.targets, weight)
    return {
        "low_learned_strength": -method.strength_network(described, batch.targets),
        "direct_strength": direct.per_sample,
        "loss": F.cross_entropy(output.logits, batch.targets, reduction="none"),
    }
