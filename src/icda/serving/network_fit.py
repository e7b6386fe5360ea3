"""`icda fit --train`: the trainer trains the network end to end, by default with the method that decides for itself."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from icda.auditing import audit
from icda.auditing.inputs import DECAY, standardise
from icda.auditing.plan import spread_treatment
from icda.data.task import Split
from icda.errors import InputError
from icda.heads.blocks import BlockRows
from icda.methods import resolve_method
from icda.results.files import CHECKPOINT, CONFIG, EXPLANATIONS, LOG, MODEL, REPORT, RESULT, TENSORBOARD
from icda.serving.fit_data import FitData
from icda.serving.fitting import Fitted, Say, as_floats, named_groups, suspected_groups
from icda.serving.head_fit import AUTO
from icda.serving.network import NetworkModel, load_network
from icda.serving.trial import Outcome, Trial, judge
from icda.training import TrainConfig, train
from icda.training.evaluation import predict_split
from icda.training.progress import ProgressView
from icda.training.run import load_folder, make_accelerator

PLAIN_RUN = "plain"  # folder of the run with cross entropy, inside the model's
# What an interrupted training leaves in the model's folder; the trainer knows whether it can go on with it.
RUN_FILES = (PLAIN_RUN, RESULT, EXPLANATIONS, MODEL, CHECKPOINT, CONFIG, LOG, TENSORBOARD, REPORT)
PLAIN = "the same network trained with cross entropy"
# Groups that are known are used; without them the method finds out for itself what is wrong.
REASONS = {"robust": "which decides for itself what is wrong", "group_prior": "groups were given"}


@dataclass(frozen=True)
class NetworkSettings:
    """What `--train` takes besides the data; `compare` trains a plain network too."""

    config: TrainConfig
    compare: bool = True
    overwrite: bool = False


def fit_network(
    data: FitData,
    settings: NetworkSettings,
    method: str = AUTO,
    say: Say | None = None,
    view: ProgressView | None = None,
) -> Fitted:
    """Audit the embedded samples, train, and judge the test split, which the trainer cuts where the data name none."""
    if data.samples is None:
        raise InputError("--train needs images or texts, and these are features: leave --train out to fit a head.")
    say = say or (lambda _: None)
    config, started = settings.config, time.perf_counter()
    say(f"Auditing {len(data)} samples ...")
    X = as_floats(data.features)
    found = audit(X, data.labels, sample_names=data.names, seed=config.seed)
    spent = {"audit": time.perf_counter() - started}
    advised = "robust" if data.groups is None else "group_prior"
    chosen = advised if method == AUTO else resolve_method(method)
    config = replace(config, method=chosen)
    runs = {"train": config}
    if settings.compare and chosen != "cross_entropy":
        runs["plain"] = replace(config, method="cross_entropy", out=str(Path(config.out) / PLAIN_RUN))
    results = {}
    for name, run in runs.items():
        say(f"Training with {run.method} ...")
        started = time.perf_counter()
        results[name] = train(run, resume=not settings.overwrite, overwrite=settings.overwrite, view=view)
        spent[name] = time.perf_counter() - started
    are_known = data.groups is not None
    if data.groups is None:
        scaled, targets = torch.from_numpy(standardise(X)), torch.from_numpy(found.in_memory()[1])
        rows = BlockRows.of_memory(scaled, targets, len(found.class_names), seed=config.seed)
        groups = suspected_groups(found, spread_treatment(found.treatment, rows, found.assessment, DECAY * X.shape[1]))
    else:
        groups = named_groups(data.labels, data.groups)
    outcomes = {name: _judged(Path(run.out), groups) for name, run in runs.items()}
    after, split = outcomes["train"]
    before = outcomes["plain"][0] if "plain" in outcomes else None
    words = f"the {len(split)} samples of the test split, which no network has seen; the audit has"
    model = load_network(Path(config.out))
    why = "as asked for" if method != AUTO else REASONS[chosen]
    done = f"A network ({model.config.model}) was trained end to end with {chosen}, {why}."
    if results["train"].found:
        done = f"{done} What it found: {results['train'].found}"
    trial = Trial(before, after, len(split), words, are_known)
    return Fitted(
        model, found, trial, chosen, done, data, spent, plain=PLAIN, has_shortcut_reader=_answers_for_shortcut(model)
    )


def _judged(folder: Path, groups: list[str] | None) -> tuple[Outcome, Split]:
    """What the run gets right on its test split; the rows of its source stand in the order of the samples."""
    _, task, networks, method = load_folder(folder, allow_outside=True)  # our own run, of data that were trusted
    split = task.test
    logits = predict_split(method, networks, split, make_accelerator("no"))
    names = np.array(task.class_names, dtype=object)
    rows = split.rows.tolist()
    own = None if groups is None else [groups[row] for row in rows]
    return judge(names[logits.argmax(1).numpy()], names[split.targets.numpy()], own), split


def _answers_for_shortcut(model: NetworkModel) -> bool:
    return model.method.answers_later and not getattr(model.method, "found", {}).get("no_shortcut")
